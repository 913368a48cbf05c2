"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from rllib_scale.errors import UserError

ENDINGS = {"--schedule": ".csv", "--gantt": ".png", "--video": ".gif", "--prices": ".png"}

SEED = click.IntRange(0, 2**63 - 1)


def _not_empty(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """An empty shell variable is no wish for the default."""
    if value == "":
        raise UserError(f"--{option.name} '': is empty; name a place, or leave the option out")
    return value


set_option = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a config key; repeatable."
)
address_option = click.option(
    "--address", metavar="ADDR", help="Ray cluster to run on (default: a local Ray of its own)."
)
results_option = click.option(
    "--results",
    metavar="PLACE",
    callback=_not_empty,
    help="Results folder, or an s3:// or gs:// URI (default: results/NAME).",
)
trust_option = click.option(
    "--trust", is_flag=True, help="Go on from checkpoints, which are pickles, in a results folder made elsewhere."
)


def numbers(option: str, text: str) -> list[int]:
    """Whole numbers by commas."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"{option} {text!r}: must be whole numbers separated by commas") from None


def check_endings(outputs: Mapping[str, Path | None]) -> None:
    """Refuse a file whose name promises another format than the one that is written."""
    for option, path in outputs.items():
        if path is not None and path.suffix != ENDINGS[option]:
            raise UserError(f"{option} {path}: must end in {ENDINGS[option]}")
