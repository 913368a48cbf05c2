"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from os.path import exists, samefile  # False for what is no name of a file
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rllib_scale.cli.terminal import say
from rllib_scale.config.base import MAX_EPISODES
from rllib_scale.errors import UserError
from rllib_scale.files import check_writable, write_atomic

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from rllib_scale.evaluation.exports import Played

ENDINGS = {
    "--schedule": (".csv",),
    "--gantt": (".png",),
    "--video": (".gif",),
    "--trace": (".json",),
    "--save-workload": (".json",),
    "--output": (".csv", ".parquet"),
}
JSON_OUTPUT = {"--output": (".json",)}

SEED = click.IntRange(0, 2**63 - 1)
EPISODES = click.IntRange(1, MAX_EPISODES)


def _not_empty(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Refuse an empty value, as of a shell variable that is not set."""
    if value == "":
        raise UserError(f"--{option.name} '': is empty; name a place, or leave the option out")
    return value


def _assignments(ctx: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a value that is no assignment before what follows, `3` of `--set a 3`, is taken for an argument."""
    from rllib_scale.config.yaml_files import parse_override

    for value in values:
        parse_override(value)
    return values


def set_option_of(help_text: str, metavar: str = "KEY=VALUE") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option `--set`, which a command receives as `overrides`."""
    return click.option(
        "--set", "overrides", multiple=True, metavar=metavar, callback=_assignments, is_eager=True, help=help_text
    )


set_option = set_option_of("Override a config key; repeatable.")
address_option = click.option("--address", metavar="ADDR", help="Ray cluster to run on (default: a new local Ray).")
results_option = click.option(
    "--results",
    metavar="PLACE",
    callback=_not_empty,
    help="Results folder, or an s3:// or gs:// URI (default: results/NAME).",
)
trust_option = click.option(
    "--trust",
    is_flag=True,
    help="Resume from checkpoints, which are pickles, of another account, and import code that given policies name.",
)
code_option = click.option("--trust", is_flag=True, help="Import the user code that a policy's files name.")
scheduler_option = click.option(
    "--scheduler", default="fastest-idle", show_default=True, help="A heuristic's name, a policy's folder, or zoo:NAME."
)
output_option = click.option(
    "--output", type=click.Path(path_type=Path), help="Write one row per episode, .csv or .parquet."
)


def numbers(option: str, text: str) -> list[int]:
    """Integers separated by commas."""
    parts = text.split(",")
    if not all(re.fullmatch(r"\s*-?[0-9]{1,18}\s*", part) for part in parts):
        raise UserError(f"{option} {text!r}: must be whole numbers separated by commas")
    return [int(part) for part in parts]


def check_outputs(
    outputs: Mapping[str, Path | None],
    endings: Mapping[str, tuple[str, ...]] = ENDINGS,
    inputs: Iterable[Path] = (),
) -> None:
    """Refuse files that cannot be written, that the command reads, or whose ending promises another format.

    Args:
        outputs: option -> its file.
        endings: option -> endings of its format.
        inputs: files that the command reads, besides those that its other options and arguments name.
    """
    read = [*inputs, *_named_files(option.removeprefix("--").replace("-", "_") for option in outputs)]
    for option, path in outputs.items():
        if path is None:
            continue
        if path.suffix not in endings[option]:
            raise UserError(f"{option} {path}: must end in {' or '.join(endings[option])}")
        if same := [each for each in read if exists(path) and exists(each) and samefile(each, path)]:
            raise UserError(f"{option} {path}: would replace {same[0]}, which the command reads; give another file")
    check_writable(outputs)


def _named_files(outputs: Iterable[str]) -> Iterator[Path]:
    """The files that options and arguments of the running command name, without the outputs; in a folder its policy."""
    context, written = click.get_current_context(silent=True), set(outputs)
    for name, value in context.params.items() if context is not None else ():
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, str | Path) and name not in written:
                yield from (Path(each), Path(each) / "policy.json")


@dataclass(frozen=True)
class EpisodeFiles:
    """Files that `simulate` and `execute` write about an episode; None: not asked for."""

    schedule: Path | None
    gantt: Path | None
    trace: Path | None

    @property
    def options(self) -> dict[str, Path | None]:
        """Option -> its file."""
        return {"--schedule": self.schedule, "--gantt": self.gantt, "--trace": self.trace}

    def write(self, played: Played, figure: Figure | None = None) -> None:
        """Write what was asked for.

        Args:
            played: the episode.
            figure: its Gantt chart; drawn here by default.
        """
        import pandas as pd

        from rllib_scale.envs.gantt import draw_gantt
        from rllib_scale.evaluation.exports import to_trace, write

        if self.schedule is not None:
            frame = pd.DataFrame(played.schedule)
            write_atomic(self.schedule, lambda path: frame.to_csv(path, index=False))
            say(f"wrote {self.schedule}: {len(frame)} started tasks")
        if self.gantt is not None:
            drawn = figure or draw_gantt(played.schedule, played.env.cluster, played.end_s, played.name)
            write_atomic(self.gantt, lambda path: drawn.savefig(path, format="png"))
            say(f"wrote {self.gantt}")
        if self.trace is not None:
            write(self.trace, to_trace(played))
            say(f"wrote {self.trace}")


def files_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --schedule, --gantt and --trace, which a command receives as `files`."""

    @wraps(command)
    def run(*, schedule: Path | None, gantt: Path | None, trace: Path | None, **others: Any) -> Any:
        return command(files=EpisodeFiles(schedule, gantt, trace), **others)

    for option, text in (
        ("--trace", "Write a trace for ui.perfetto.dev (JSON)."),
        ("--gantt", "Draw the schedule (PNG)."),
        ("--schedule", "Write the schedule (CSV)."),
    ):
        run = click.option(option, type=click.Path(path_type=Path), help=text)(run)
    return run


def write_output(frame: pd.DataFrame, path: Path | None) -> None:
    """Write the rows of --output in the format that its ending names."""
    if path is None:
        return
    write = frame.to_csv if path.suffix == ".csv" else frame.to_parquet
    write_atomic(path, lambda temporary: write(temporary, index=False))
    say(f"wrote {path}")
