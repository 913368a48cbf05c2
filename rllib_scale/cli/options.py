"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rllib_scale.cli.terminal import say
from rllib_scale.config.base import MAX_EPISODES
from rllib_scale.errors import UserError
from rllib_scale.files import write_atomic

if TYPE_CHECKING:
    import pandas as pd

ENDINGS = {
    "--schedule": (".csv",),
    "--gantt": (".png",),
    "--video": (".gif",),
    "--prices": (".png",),
    "--output": (".csv", ".parquet"),
}

SEED = click.IntRange(0, 2**63 - 1)
EPISODES = click.IntRange(1, MAX_EPISODES)


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
    "--trust",
    is_flag=True,
    help="Go on from checkpoints, which are pickles, in a results folder made elsewhere, and "
    "import code that given policies name.",
)

code_option = click.option("--trust", is_flag=True, help="Import the user code that a policy's files name.")


def numbers(option: str, text: str) -> list[int]:
    """Whole numbers by commas."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"{option} {text!r}: must be whole numbers separated by commas") from None


def check_endings(outputs: Mapping[str, Path | None]) -> None:
    """Refuse a file whose name promises another format than the one that is written."""
    for option, path in outputs.items():
        if path is not None and path.suffix not in ENDINGS[option]:
            raise UserError(f"{option} {path}: must end in {' or '.join(ENDINGS[option])}")


def played_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --schedule, --gantt and --trace: the files that tell what was played."""
    for option, text in (
        ("--trace", "Write a trace for ui.perfetto.dev (JSON)."),
        ("--gantt", "Draw the schedule (PNG)."),
        ("--schedule", "Write the schedule (CSV)."),
    ):
        command = click.option(option, type=click.Path(path_type=Path), help=text)(command)
    return command


def write_output(frame: pd.DataFrame, path: Path) -> None:
    """Write the rows of --output in the format that its ending names."""
    write = frame.to_csv if path.suffix == ".csv" else frame.to_parquet
    write_atomic(path, lambda temporary: write(temporary, index=False))
    say(f"wrote {path}")
