"""Commands that show results: report, status, dashboard."""

from __future__ import annotations

import shlex
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from click.core import Parameter

from rllib_scale.cli.terminal import console, json_option, say, show
from rllib_scale.errors import UserError, counted

MOST_LISTED = 200
"""Trainings that `status` lists; of more, those that run, failed or were stopped come first."""
LISTED_LAST = ("finished", "waiting")


class LocalFolder(click.Path):
    """A folder on this machine or a shared disk."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: Parameter | None, ctx: click.Context | None) -> Any:
        """The path; a URI is refused."""
        if "://" in str(value):
            raise UserError(
                f"{value}: must be a folder on this machine; `rllib-scale fetch` copies results from a bucket"
            )
        return super().convert(value, param, ctx)


@click.command()
@click.argument("results", metavar="RESULTS")
@click.option("--output", type=LocalFolder(), metavar="DIR", help="Write it to DIR (default: RESULTS/report).")
@click.option("--trust", is_flag=True, help="Import the user code that RESULTS of another account names.")
@click.option("--latex", is_flag=True, help="Also write every table as LaTeX.")
def report(results: str, output: Path | None, trust: bool, latex: bool) -> None:
    """Print the main tables of RESULTS and write report.html, tables (CSV) and figures (SVG) to RESULTS/report.

    RESULTS is a results folder, or an s3:// or gs:// URI. The report replaces an earlier one; other files stay.
    """
    from rllib_scale.results.storage import results_folder

    with results_folder(results, say, must_exist=True) as (folder, _):
        write_report(folder, results, trust, latex, output)


@click.command()
@click.argument("results", metavar="RESULTS")
@json_option
def status(results: str) -> None:
    """Show the state of the trainings and evaluations in RESULTS, of a running or finished sweep.

    RESULTS is a results folder, or an s3:// or gs:// URI.
    """
    from rllib_scale.results.storage import results_folder

    with results_folder(results, lambda line: None, must_exist=True) as (folder, _):
        _show_status(folder, results)


def _show_status(results_dir: Path, place: str) -> None:
    import time

    from rllib_scale.results.status import evaluations, homes, read_curve, trainings
    from rllib_scale.results.tables import read_manifest

    if read_manifest(results_dir) is None:
        raise UserError(f"{place}: no results folder (it has no manifest.json)")
    rows: list[dict[str, Any]] = []
    done = planned = 0
    for home in homes(results_dir):
        finished, wanted = evaluations(home)
        done, planned = done + finished, planned + wanted
        for training in trainings(home, time.time()):
            curve = read_curve(training.curve) if training.curve is not None else []
            ago = None if training.updated_s is None else max(0.0, time.time() - training.updated_s)
            rows.append(
                {"training": training.name, "state": training.state, "epochs": training.epochs}
                | {"epoch": curve[-1].get("epoch", len(curve)) if curve else 0}
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
    show(listed, columns, place, content=content)
    if len(listed) < len(rows):
        counts = Counter(row["state"] for row in rows)
        states = ", ".join(f"{count} {state}" for state, count in counts.items())
        say(f"Trainings: {states}; {len(listed)} of {len(rows)} are listed, --json prints all")
    say(f"{done} of {counted(planned, 'evaluation')} done")


def _ago(row: dict[str, Any]) -> str:
    seconds = row["changed_s_ago"]
    return "" if seconds is None else f"{timedelta(seconds=round(seconds))} ago"


@click.command()
@click.argument("results_dir", type=LocalFolder())
@click.option("--port", type=click.IntRange(1, 65535), help="Port on loopback (default: 8501, or the next free one).")
def dashboard(results_dir: Path, port: int | None) -> None:
    """Serve a live page about RESULTS_DIR, of a running or finished sweep, on loopback."""
    from rllib_scale_analysis.dashboard.serve import serve

    serve(results_dir, port)


def write_report(
    folder: Path, place: str, trust: bool = False, latex: bool = False, output: Path | None = None
) -> None:
    """Print the main tables of the results at `place`, of which `folder` may be a copy, and write their report."""
    from rllib_scale_analysis.report.write import write_report as write

    from rllib_scale.evaluation.replay import Replay
    from rllib_scale.results.tables import read_manifest
    from rllib_scale.results.trust import is_own

    trust = trust or is_own(place, str((read_manifest(folder) or {}).get("created")))
    path = write(folder, output, gantt=Replay(folder, trust), console=console, latex=latex)
    if output is None:
        say_places(place)
    else:
        say(f"The report is {path}")


def say_places(place: str) -> None:
    """Say where the report of results is, and how they are copied from a bucket."""
    from rllib_scale.results.storage import Location

    say(f"The report is {Location(place) / 'report/report.html'}")
    if Location(place).local is None:
        say(f"To copy all results: rllib-scale fetch {shlex.quote(place)} results/{Path(urlsplit(place).path).name}")
