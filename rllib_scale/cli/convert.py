"""The command that brings what 0.3 wrote into the form of this version: convert."""

from __future__ import annotations

from pathlib import Path

import click

from rllib_scale.errors import UserError


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--output", required=True, type=click.Path(path_type=Path), help="New file or folder; PATH stays.")
def convert(path: Path, output: Path) -> None:
    """Convert PATH of version 0.3: the YAML of a sweep, without its comments; results; or a policy.

    Metrics of results stay as they are, to the last digit, and the new names of trainings are printed. What is not
    finished is refused.
    """
    import yaml

    from rllib_scale.config.yaml_files import parse_yaml, read_text
    from rllib_scale.files import write_atomic
    from rllib_scale.sweeps.former import convert_policy, convert_results
    from rllib_scale.sweeps.former_sweep import sweep_of

    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"--output {output}: is there and not empty; give another name")
    if path.is_file():
        sweep = parse_yaml(read_text(path), str(path))
        try:
            text = yaml.safe_dump(sweep_of(sweep), sort_keys=False, allow_unicode=True)
        except (KeyError, TypeError, AttributeError, ValueError):
            raise UserError(f"{path}: not the YAML of a sweep of 0.3") from None
        write_atomic(output, lambda place: place.write_text(text, encoding="utf-8"))
    elif (path / "manifest.json").is_file():
        for old, new in convert_results(path, output).items():
            click.echo(f"{old} > {new}")
    elif (path / "policy.json").is_file():
        convert_policy(path, output)
    else:
        raise UserError(f"{path}: valid: a folder with results (manifest.json) or with a policy (policy.json)")
