"""Commands that show results: report, dashboard."""

from __future__ import annotations

from pathlib import Path

import click

from rllib_scale.cli.terminal import console, say


@click.command()
@click.argument("results_dir", type=click.Path(path_type=Path))
@click.option("--trust", is_flag=True, help="Import rules of one's own that RESULTS_DIR, made elsewhere, names.")
def report(results_dir: Path, trust: bool) -> None:
    """Print the tables of a results folder and write a page, the tables and the figures to RESULTS_DIR/report."""
    write_report(results_dir, trust)


@click.command()
@click.argument("results_dir", type=click.Path(path_type=Path))
@click.option("--port", type=click.IntRange(1, 65535), help="Of loopback (default: 8501, or the next free one).")
def dashboard(results_dir: Path, port: int | None) -> None:
    """Show RESULTS_DIR, of a running or finished sweep, as a live page on loopback."""
    from rllib_scale_analysis.dashboard.serve import serve

    serve(results_dir, port)


def write_report(folder: Path, trust: bool = False) -> None:
    """Print the tables of a results folder and write its report."""
    from rllib_scale_analysis.load import load
    from rllib_scale_analysis.report.terminal import print_report
    from rllib_scale_analysis.report.write import write_report as write

    from rllib_scale.evaluation.replay import Replay

    print_report(load(folder), console)
    page = write(folder, gantt=Replay(folder, trust))
    say(f"wrote {page} and {page.with_suffix('.html').name}")
