"""Commands that show results: report, status, dashboard."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from rllib_scale.cli.terminal import console, json_option, say, show
from rllib_scale.errors import UserError

MOST_LISTED = 200
"""Trainings that `status` lists; of more, those that run, failed or were stopped come first."""
LISTED_LAST = ("finished", "waiting")


@click.command()
@click.argument("results_dir", type=click.Path(path_type=Path))
@click.option("--trust", is_flag=True, help="Import the user code that RESULTS_DIR of another account names.")
@click.option("--latex", is_flag=True, help="Also write every table as LaTeX.")
def report(results_dir: Path, trust: bool, latex: bool) -> None:
    """Print the main tables of RESULTS_DIR and write report.html, tables (CSV) and figures (SVG) to RESULTS_DIR/report.

    It replaces an earlier report and keeps other files in that folder.
    """
    write_report(results_dir, trust, latex)


@click.command()
@click.argument("results_dir", type=click.Path(path_type=Path))
@json_option
def status(results_dir: Path) -> None:
    """Show the state of the trainings and evaluations in RESULTS_DIR, of a running or finished sweep."""
    import time

    from rllib_scale.results.status import evaluations, homes, read_curve, trainings
    from rllib_scale.results.tables import read_manifest

    if read_manifest(results_dir) is None:
        raise UserError(f"{results_dir}: no results folder (it has no manifest.json)")
    rows: list[dict[str, Any]] = []
    done = planned = 0
    for home in homes(results_dir):
        finished, wanted = evaluations(home)
        done, planned = done + finished, planned + wanted
        for training in trainings(home, time.time()):
            curve = read_curve(training.curve) if training.curve is not None else []
            ago = None if training.updated_s is None else max(0.0, time.time() - training.updated_s)
            rows.append(
                {"training": training.name, "state": training.state, "epoch": len(curve), "epochs": training.epochs}
                | {"changed_s_ago": ago, "error": training.error, "last": curve[-1] if curve else {}}
            )
    columns: dict[str, Any] = {"training": "training", "state": "state", "epoch": "epoch", "of": "epochs"}
    columns |= {"return": lambda row: row["last"].get("episode_return")}
    columns |= {"response (s)": lambda row: row["last"].get("response_mean_s"), "changed": _ago}
    columns |= {"last error": lambda row: (row["error"] or "")[:200]}
    content = {"trainings": rows, "evaluations": {"done": done, "planned": planned}}
    listed = rows
    if len(rows) > MOST_LISTED:
        listed = sorted(rows, key=lambda row: row["state"] in LISTED_LAST)[:MOST_LISTED]
    show(listed, columns, str(results_dir), content=content)
    if len(listed) < len(rows):
        counts = Counter(row["state"] for row in rows)
        states = ", ".join(f"{count} {state}" for state, count in counts.items())
        say(f"trainings: {states}; {len(listed)} of {len(rows)} are listed, --json prints all")
    say(f"evaluations: {done} of {planned} done")


def _ago(row: dict[str, Any]) -> str:
    seconds = row["changed_s_ago"]
    return "" if seconds is None else f"{timedelta(seconds=round(seconds))} ago"


@click.command()
@click.argument("results_dir", type=click.Path(path_type=Path))
@click.option("--port", type=click.IntRange(1, 65535), help="Port on loopback (default: 8501, or the next free one).")
def dashboard(results_dir: Path, port: int | None) -> None:
    """Serve a live page about RESULTS_DIR, of a running or finished sweep, on loopback."""
    from rllib_scale_analysis.dashboard.serve import serve

    serve(results_dir, port)


def write_report(folder: Path, trust: bool = False, latex: bool = False) -> None:
    """Print the main tables of a results folder and write its report."""
    from rllib_scale_analysis.report.write import write_report as write

    from rllib_scale.evaluation.replay import Replay

    say(f"wrote {write(folder, gantt=Replay(folder, trust), console=console, latex=latex)}")
