"""The command that copies results from a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from rllib_scale.cli.terminal import say


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
