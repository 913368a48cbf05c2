"""What commands play: a scenario, changed as one likes, and schedulers by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rllib_scale.cli.terminal import say
from rllib_scale.errors import UserError

if TYPE_CHECKING:
    from rllib_scale.config import EnvConfig
    from rllib_scale.workloads.model import Workload


def own_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--config` and `--set`, for a user-defined problem."""
    change = click.option(
        "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change the problem; keys as below `env`."
    )
    file = click.option(
        "--config",
        type=click.Path(path_type=Path),
        help="YAML of a problem, what stands below `env` in a sweep; the scenario has what it leaves out.",
    )
    return file(change(command))


def own_problem(config: Path | None, overrides: tuple[str, ...]) -> dict[str, Any]:
    """What `--config` and `--set` say of the problem.

    Raises:
        UserError: the file cannot be read, or is no mapping.
    """
    from rllib_scale.config.yaml_files import parse_override, set_path
    from rllib_scale.loading import read_mapping

    data = {} if config is None else read_mapping(config)
    for override in overrides:
        path, value = parse_override(override)
        set_path(data, path.removeprefix("env."), value)
    return data


def named_problem(
    name: str,
    servers: int | None,
    mask: str | None,
    horizon: float | None = None,
    own: dict[str, Any] | None = None,
    folder: Path | None = None,
) -> EnvConfig:
    """A scenario, changed by `own`, at a number of servers; None: as many as it has then.

    Files that `own` names may be relative to `folder`.

    Raises:
        UserError: there is none of that name, or not at so few servers; or a key or a value is not valid.
    """
    from rllib_scale.config.yaml_files import merged
    from rllib_scale.loading import env_from, named_scenario

    data = merged(named_scenario(name).model_dump(mode="json"), own or {})
    source, folder = "--config, --set" if own else name, folder or Path()
    if isinstance(data["cluster"], str):
        data["cluster"] = env_from(data, source, folder).cluster.model_dump(mode="json")
    if servers is not None and isinstance(data["cluster"], dict):
        data["cluster"]["servers"] = servers
    for key, value in (("mask", mask), ("horizon_s", horizon)):
        if value is not None and isinstance(data["episode"], dict):
            data["episode"][key] = value
    return env_from(data, source, folder)


def given_workload(path: Path, ctx: click.Context, drawn_by: tuple[str, ...]) -> Workload:
    """The workload in a file; options by which one would be drawn are refused beside it.

    Raises:
        UserError: see `Workload.load`; or such an option is given.
    """
    from rllib_scale.workloads.model import Workload

    for name in drawn_by:
        if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise UserError(f"--{name}: is of a workload that is drawn, and --workload {path} gives one; leave one out")
    return Workload.load(path)


def to_its_end(env: EnvConfig, workload: Workload, path: Path, asked: bool) -> EnvConfig:
    """The problem with room for all of a given workload, unless a horizon was `asked` for.

    Raises:
        UserError: a task fits no server.
    """
    workload.check_fits(max(tier.memory_gb for tier in env.cluster.tiers), str(path))
    if asked or workload.num_tasks == 0:
        return env
    from rllib_scale.evaluation.play import played_to_its_end

    return played_to_its_end(env, workload)


def say_what_is_left(name: str, metrics: Mapping[Any, Any], workload: Workload) -> None:
    """Of a given workload that was not played to its end."""
    say(
        f"{name}: of {workload.num_workflows} workflows {metrics['workflows_arrived']:g} had arrived and "
        f"{metrics['workflows_completed']:g} were done at the end, {metrics['duration_s']:g} s"
    )
