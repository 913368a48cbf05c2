"""The commands that concern a Ray cluster beyond `--address`: check its file, submit to it, fetch from it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from rllib_scale.cli.options import set_option
from rllib_scale.cli.terminal import say

_path = click.Path(path_type=Path)


@click.group()
def cluster() -> None:
    """Prepare a Ray cluster."""


@cluster.command()
@click.argument("file", type=_path)
@click.option("--sweep", type=_path, help="A sweep whose trainings the workers must be able to hold.")
@click.option("--open-dashboard", is_flag=True, help="Allow a dashboard that others than the head itself can reach.")
def check(file: Path, sweep: Path | None, open_dashboard: bool) -> None:
    """Check the cluster FILE for `ray up` without a cloud: Ray's own schema, sizes, authentication, secrets."""
    from rllib_scale.clusters.cluster_file import check_cluster_file

    for line in check_cluster_file(file, sweep, open_dashboard):
        say(line)


@click.command()
@click.argument("file", type=_path)
@click.option("--address", required=True, metavar="URL", help="The job server: http://HEAD:8265.")
@click.option("--results", required=True, metavar="PLACE", help="Absolute path that every node sees, s3:// or gs://.")
@click.option("--working-dir", type=_path, default=".", show_default=True, help="Sent to the cluster; holds FILE.")
@click.option("--trust", is_flag=True, help="Go on from the checkpoints in PLACE though another head wrote them.")
@set_option
def submit(file: Path, address: str, results: str, working_dir: Path, trust: bool, overrides: tuple[str, ...]) -> None:
    """Run the sweep of FILE on a cluster as a Ray job, follow its log, end with its exit code.

    Ctrl-C leaves the job running; the same command follows it again.
    """
    from rllib_scale.clusters.jobs import SweepJob, run_job

    job = SweepJob(file, results, overrides, trust)
    sys.exit(run_job(job, address, working_dir, say))


@click.command()
@click.argument("source", metavar="PLACE")
@click.argument("destination", type=_path)
@click.option("--trials", is_flag=True, help="Fetch Ray Tune's checkpoints (pickles) and logs, too.")
def fetch(source: str, destination: Path, trials: bool) -> None:
    """Copy a results folder from PLACE, a path or an s3:// or gs:// URI, to DESTINATION.

    Each file is there whole or not at all. Run again, it copies what is missing or has changed.
    """
    from rllib_scale.results.storage import Location
    from rllib_scale.results.storage import fetch as copy

    copy(Location(source), destination, trials, say)
