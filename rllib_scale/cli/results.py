"""Commands about results: report, status, dashboard, fetch."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import Parameter

from rllib_scale.cli.terminal import console, json_option, say, show
from rllib_scale.errors import UserError, counted

if TYPE_CHECKING:
    from rllib_scale.results.storage import Location

MOST_LISTED = 200
"""Trainings that `status` lists; of more, those that run, failed or were stopped come first."""
LISTED_LAST = ("finished", "waiting")


def _locations(ctx: click.Context, parameter: Parameter, places: tuple[str, ...]) -> list[Location]:
    from rllib_scale.results.storage import Location

    return [Location(place) for place in places]


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


results_argument = click.argument("results", metavar="RESULTS...", nargs=-1, required=True, callback=_locations)


@click.command()
@results_argument
@click.option("--output", type=LocalFolder(), metavar="DIR", help="Write it to DIR (default: RESULTS/report).")
@click.option("--trust", is_flag=True, help="Import the user code that RESULTS of another account names.")
@click.option("--latex", is_flag=True, help="Also write every table as LaTeX.")
def report(results: list[Location], output: Path | None, trust: bool, latex: bool) -> None:
    """Print the main tables of RESULTS and write report.html, tables (CSV) and figures (SVG) to RESULTS/report.

    RESULTS are results folders, or s3:// or gs:// URIs, which are read where they are. Of several, the rows are joined,
    and the report is written to the first. It replaces an earlier report; other files stay.
    """
    write_report(results, trust, latex, output)


@click.command()
@results_argument
@json_option
def status(results: list[Location]) -> None:
    """Show the state of the trainings and evaluations in RESULTS, of running or finished sweeps.

    RESULTS are results folders, or s3:// or gs:// URIs.
    """
    import time

    from rllib_scale.results.status import evaluations, trainings
    from rllib_scale.results.tables import read_manifest

    rows: list[dict[str, Any]] = []
    done = planned = 0
    for home in results:
        if read_manifest(home) is None:
            raise UserError(f"{home}: no results folder (it has no manifest.json)")
        finished, wanted = evaluations(home)
        done, planned = done + finished, planned + wanted
        for training in trainings(home, time.time()):
            ago = None if training.updated_s is None else max(0.0, time.time() - training.updated_s)
            rows.append(
                {"training": training.name, "state": training.state, "epochs": training.epochs}
                | {"epoch": training.last.get("epoch", 0), "changed_s_ago": ago}
                | {"error": training.error, "last": training.last}
            )
    columns: dict[str, Any] = {"training": "training", "state": "state", "epoch": "epoch", "of": "epochs"}
    columns |= {"return": lambda row: row["last"].get("episode_return")}
    columns |= {"response (s)": lambda row: row["last"].get("response_mean_s"), "changed": _ago}
    columns |= {"last error": lambda row: (row["error"] or "")[:200]}
    content = {"trainings": rows, "evaluations": {"done": done, "planned": planned}}
    listed = rows
    if len(rows) > MOST_LISTED:
        listed = sorted(rows, key=lambda row: row["state"] in LISTED_LAST)[:MOST_LISTED]
    show(listed, columns, ", ".join(map(str, results)), content=content)
    if len(listed) < len(rows):
        counts = Counter(row["state"] for row in rows)
        states = ", ".join(f"{count} {state}" for state, count in counts.items())
        say(f"Trainings: {states}; {len(listed)} of {len(rows)} are listed, --json prints all")
    say(f"{done} of {counted(planned, 'evaluation')} done")


def _ago(row: dict[str, Any]) -> str:
    seconds = row["changed_s_ago"]
    return "" if seconds is None else f"{timedelta(seconds=round(seconds))} ago"


@click.command()
@results_argument
@click.option("--port", type=click.IntRange(1, 65535), help="Port on loopback (default: 8501, or the next free one).")
@click.option("--hub", metavar="URL", help="Where a hub or a reverse proxy shows the page, as https://HOST/PATH.")
def dashboard(results: list[Location], port: int | None, hub: str | None) -> None:
    """Serve a live dashboard of RESULTS, of running or finished sweeps, on loopback.

    RESULTS are results folders, or s3:// or gs:// URIs, which are read where they are.
    """
    from rllib_scale_analysis.dashboard.serve import serve

    serve(results, port, hub)


@click.command()
@click.argument("source", metavar="PLACE")
@click.argument("destination", type=click.Path(path_type=Path))
def fetch(source: str, destination: Path) -> None:
    """Copy a results folder from PLACE, a path or an s3:// or gs:// URI, to DESTINATION, without checkpoints and logs.

    Each file is copied completely or not at all.
    """
    from rllib_scale.results.storage import Location
    from rllib_scale.results.storage import fetch as copy

    copy(Location(source), destination, say)


def write_report(
    homes: Sequence[Location], trust: bool = False, latex: bool = False, output: Path | None = None
) -> None:
    """Print the main tables of results and write their report, to the first folder if there is no `output`."""
    from rllib_scale_analysis.report.write import write_report as write

    from rllib_scale.evaluation.replay import Replay

    def write_to(folder: Path | None) -> Path:
        return write(homes, folder, gantt=Replay(*homes, trust=trust), console=console, latex=latex)

    if output is not None:
        say(f"The report is {write_to(output)}")
        return
    if homes[0].local is not None:
        write_to(None)
    else:
        with (homes[0] / "report").writing() as folder:
            write_to(folder)
    say_places(homes[0])


def say_places(home: Location) -> None:
    """Say where the report of results is, and how they are copied from a bucket."""
    say(f"The report is {home / 'report/report.html'}")
    if home.local is None:
        say(f"To copy all results: rllib-scale fetch {shlex.quote(str(home))} results/{home.name}")
