"""Commands that show results: report, status, dashboard."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click
from rich.table import Table

from rllib_scale.cli.terminal import console, json_option, say, show
from rllib_scale.errors import UserError


@click.command()
@click.argument("results_dir", type=click.Path(path_type=Path))
@click.option("--trust", is_flag=True, help="Import the user code that RESULTS_DIR, made elsewhere, names.")
@click.option("--latex", is_flag=True, help="Write every table as LaTeX, too.")
def report(results_dir: Path, trust: bool, latex: bool) -> None:
    """Print the main tables of RESULTS_DIR and write report.html, tables (CSV) and figures (SVG) to RESULTS_DIR/report.

    An earlier report is replaced; other files in that folder stay.
    """
    write_report(results_dir, trust, latex)


@click.command()
@click.argument("results_dir", type=click.Path(path_type=Path))
@json_option
def status(results_dir: Path) -> None:
    """Show what has become of the trainings and evaluations in RESULTS_DIR, of a running or finished sweep."""
    import time

    from rllib_scale.results.status import evaluations, homes, read_curve, trainings
    from rllib_scale.results.tables import read_manifest

    if read_manifest(results_dir) is None:
        raise UserError(f"{results_dir}: no results folder (it has no manifest.json)")
    table = Table(title=str(results_dir), title_justify="left")
    for column in ("training", "state", "epoch", "of", "return", "response (s)", "changed", "last error"):
        table.add_column(column, overflow="fold")
    content, done, planned = [], 0, 0
    for home in homes(results_dir):
        finished, wanted = evaluations(home)
        done, planned = done + finished, planned + wanted
        for training in trainings(home, time.time()):
            curve = read_curve(training.curve) if training.curve is not None else []
            last = curve[-1] if curve else {}
            ago = None if training.updated_s is None else max(0.0, time.time() - training.updated_s)
            shown = (f"{last[key]:.2f}" if key in last else "" for key in ("episode_return", "response_mean_s"))
            epochs = "" if training.epochs is None else str(training.epochs)
            changed = "" if ago is None else f"{timedelta(seconds=round(ago))} ago"
            table.add_row(
                training.name, training.state, str(len(curve)), epochs, *shown, changed, (training.error or "")[:200]
            )
            content.append(
                {"training": training.name, "state": training.state, "epoch": len(curve), "epochs": training.epochs}
                | {"changed_s_ago": ago, "error": training.error, "last": last}
            )
    show(table, {"trainings": content, "evaluations": {"done": done, "planned": planned}})
    say(f"evaluations: {done} of {planned} done")


@click.command()
@click.argument("results_dir", type=click.Path(path_type=Path))
@click.option("--port", type=click.IntRange(1, 65535), help="Of loopback (default: 8501, or the next free one).")
def dashboard(results_dir: Path, port: int | None) -> None:
    """Show RESULTS_DIR, of a running or finished sweep, as a live page on loopback."""
    from rllib_scale_analysis.dashboard.serve import serve

    serve(results_dir, port)


def write_report(folder: Path, trust: bool = False, latex: bool = False) -> None:
    """Print the main tables of a results folder and write its report."""
    from rllib_scale_analysis.report.write import write_report as write

    from rllib_scale.evaluation.replay import Replay

    say(f"wrote {write(folder, gantt=Replay(folder, trust), console=console, latex=latex)}")
