"""The command that brings what 0.3 wrote into the form of this version: convert."""

from __future__ import annotations

from pathlib import Path

import click

from rllib_scale.errors import UserError


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--output", required=True, type=click.Path(path_type=Path), help="New folder; PATH stays as it is.")
def convert(path: Path, output: Path) -> None:
    """Convert PATH, a results folder or a policy of version 0.3, and print the new names of trainings.

    Metrics stay as they are, to the last digit. Only what is finished is converted.
    """
    from rllib_scale.sweeps.former import convert_policy, convert_results

    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"--output {output}: is there and not empty; name a new folder")
    if (path / "manifest.json").is_file():
        for old, new in convert_results(path, output).items():
            click.echo(f"{old} > {new}")
    elif (path / "policy.json").is_file():
        convert_policy(path, output)
    else:
        raise UserError(f"{path}: valid: a folder with results (manifest.json) or with a policy (policy.json)")
