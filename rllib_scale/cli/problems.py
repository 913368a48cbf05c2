"""The problem that a command plays: a scenario, changed by options, and a given workload."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rllib_scale.cli.options import set_option_of
from rllib_scale.cli.terminal import say
from rllib_scale.errors import UserError

if TYPE_CHECKING:
    from rllib_scale.config import EnvConfig
    from rllib_scale.observation.policy import Policy
    from rllib_scale.workloads.model import Workload

_path = click.Path(path_type=Path)
mask_option = click.option("--mask", type=click.Choice(["none", "feasible"]), help="Default: that of the scenario.")
config_option = click.option(
    "--config",
    "--cluster",
    "config",
    type=_path,
    help="YAML with keys of `env` in a sweep, as `cluster`, which change the scenario.",
)
_OPTIONS = (
    config_option,
    set_option_of("Change a key of `env`; repeatable."),
    click.option("--workload", type=_path, help="Your workload, JSON or sample:agents."),
    click.option("--horizon", type=float, help="End of an episode in s (default: that of the scenario)."),
    mask_option,
)


@dataclass(frozen=True)
class Problem:
    """A scenario, by name or file, with the changes that a command's options make.

    `draws`: whether its workload may be drawn; where the command plays another one, that one's tasks decide what fits.
    """

    scenario: str
    mask: str | None = None
    horizon: float | None = None
    config: Path | None = None
    overrides: tuple[str, ...] = ()
    workload_file: Path | None = None
    draws: bool = True
    _warned: set[int | str] = field(default_factory=set, compare=False)

    @cached_property
    def changes(self) -> dict[str, Any]:
        """Keys of `env` that the file and `--set` change.

        Raises:
            UserError: the file cannot be read or is no mapping.
        """
        from rllib_scale.config.yaml_files import parse_override, set_path
        from rllib_scale.loading import read_mapping

        data = {} if self.config is None else read_mapping(self.config)
        for override in self.overrides:
            path, value = parse_override(override)
            set_path(data, path.removeprefix("env."), value)
        return data

    @cached_property
    def workload(self) -> Workload | None:
        """The given workload, see `given_workload`."""
        return None if self.workload_file is None else given_workload(self.workload_file)

    def servers(self, default: int) -> int | None:
        """The default number of servers; None, which keeps their number, where the user defines the problem."""
        from rllib_scale.config import SCENARIOS

        return None if "cluster" in self.changes or self.scenario not in SCENARIOS else default

    def env(self, servers: int | None) -> EnvConfig:
        """The problem at a number of servers, with time to finish a given workload unless a horizon is set.

        Raises:
            UserError: the scenario is unknown or not possible with so few servers; a key or a value is invalid; the
                problem is too large; or a task of the workload fits no server.
        """
        from rllib_scale.config import EnvConfig
        from rllib_scale.config.base import merged
        from rllib_scale.evaluation.play import played_to_its_end
        from rllib_scale.loading import named_scenario

        data = merged(EnvConfig, named_scenario(self.scenario).model_dump(mode="json"), self.changes)
        # Settings of both are validated in one go; a file is named by its path, not by its option.
        source = ", ".join([str(self.config)] * (self.config is not None) + ["--set"] * bool(self.overrides))
        source = source or self.scenario
        folder = self.config.parent if self.config else Path()
        if isinstance(data["cluster"], str) or "servers" in self.changes.get("cluster", ()):  # which must be valid, too
            data["cluster"] = self._env_of(data, source, folder).cluster.model_dump(mode="json")
        if servers is not None and isinstance(data["cluster"], dict):
            data["cluster"]["servers"] = servers
        for key, value in (("mask", self.mask), ("horizon_s", self.horizon)):
            if value is not None and isinstance(data["episode"], dict):
                data["episode"][key] = value
        env = self._env_of(data, source, folder)
        asked = data["cluster"]["tiers"] if isinstance(data["cluster"], dict) else ()
        if len(env.cluster.tiers) < len(asked):
            say(f"{env.cluster.num_servers} servers for {len(asked)} tiers: what remains is {env.cluster.tier_counts}")
        if self.workload is None:
            try:
                env.check_arrivals(self.changes)
            except ValueError as error:
                raise UserError(f"{source}: {error}") from None
            env.check_size()
            if str(env.service.trace) not in self._warned:
                self._warned.add(str(env.service.trace))
                say_read(env)
            return env
        self.workload.check_fits(env.cluster, str(self.workload_file))
        self._warn(self.workload, env)
        if self.horizon is None and "horizon_s" not in self.changes.get("episode", {}):
            return played_to_its_end(env, self.workload)
        if (first_s := float(self.workload.arrival_s[0])) >= env.episode.horizon_s:
            raise UserError(
                f"{self.workload_file}: its first workflow arrives at {first_s:g} s, after the end of the episode; "
                f"valid: a horizon above that (got {env.episode.horizon_s:g})"
            )
        return env

    def check_unseen(self, schedulers: Iterable[Policy], env: EnvConfig) -> None:
        """Refuse to compare schedulers on a trace, or on a given workload, that one of them was trained on.

        Raises:
            UserError: with what is valid.
        """
        from rllib_scale.config import TraceConfig, WorkloadConfig
        from rllib_scale.evaluation.play import check_unseen
        from rllib_scale.presets import workload_file

        if self.workload_file is None:
            check_unseen(schedulers, env)
            return
        file = workload_file(str(self.workload_file)).absolute()
        try:
            workload = WorkloadConfig(trace=TraceConfig(file=str(file)))
            check_unseen(schedulers, env.model_copy(update={"workload": workload}))
        except UserError as error:
            raise UserError(
                f"--workload: plays the whole file; --set workload.trace={file} can play a part: {error}"
            ) from None

    def _env_of(self, data: dict[str, Any], source: str, folder: Path) -> EnvConfig:
        """The problem of these settings; of what is not drawn nothing is too large for its servers."""
        from rllib_scale.config import ClusterConfig, NormalConfig
        from rllib_scale.config.yaml_files import build_model
        from rllib_scale.loading import env_from

        if not (self.draws and self.workload is None) and isinstance(drawn := data["workload"], dict):
            memory = build_model(NormalConfig, drawn["memory_gb"], source, "workload.memory_gb")
            cluster = build_model(ClusterConfig, data["cluster"], source, "cluster")
            largest, is_fixed = cluster.largest_memory_gb, all(tier.replica is None for tier in cluster.tiers)
            if is_fixed and (memory.high is None or memory.high > largest):
                fitting = {"high": largest, "low": min(memory.low, largest), "bound": "clip"}
                data = data | {"workload": drawn | {"memory_gb": memory.model_dump() | fitting}}
        return env_from(data, source, folder)

    def _warn(self, workload: Workload, env: EnvConfig) -> None:
        """Say once for each size of the cluster what looks wrong about the times of a given workload."""
        from rllib_scale.workloads.summary import summarise

        servers = env.cluster.num_servers
        if servers not in self._warned:
            self._warned.add(servers)
            for warning in summarise(workload, env.cluster).warnings():
                say(f"{self.workload_file} on {servers} servers: {warning}")

    def say_unfinished(self, name: str, metrics: Mapping[Any, Any]) -> None:
        """Say how much of a given workload a scheduler finished, if it did not finish all."""
        if self.workload is not None and metrics["workflows_completed"] < self.workload.num_workflows:
            say(
                f"{name}: of {self.workload.num_workflows} workflows {metrics['workflows_arrived']:g} had arrived and "
                f"{metrics['workflows_completed']:g} were done at the end, {metrics['duration_s']:g} s"
            )


def say_read(env: EnvConfig) -> None:
    """Say what was read of the trace of a problem of `service: replica`, and what was left out, if it has one.

    Raises:
        UserError: it cannot be read.
    """
    if env.service.trace is not None:
        from rllib_scale.simulator.replicas.scripts import counted_in

        counts = counted_in(env.service)
        say(f"{env.service.path}: {'; '.join(f'{count:,} {what}' for what, count in counts.items() if count)}")


def given_workload(path: Path) -> Workload:
    """A workload that is played as given; arrivals by a date or a time of day are shifted to the first one.

    Raises:
        UserError: see `Workload.load`.
    """
    from rllib_scale.workloads.model import Workload
    from rllib_scale.workloads.summary import is_dated, shift_text

    workload = Workload.load(path)
    if not is_dated(workload.arrival_s):
        return workload
    say(f"{path}: {shift_text(float(workload.arrival_s[0]))}")
    return replace(workload, arrival_s=workload.arrival_s - workload.arrival_s[0])


def problem_options(*drawn_by: str, default: str = "paper") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options of a problem, which a command receives as `problem`.

    Args:
        drawn_by: options that determine a drawn workload, and are refused with a given one.
        default: name of the scenario where the command names none.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(
            *,
            scenario: str,
            mask: str | None,
            horizon: float | None,
            config: Path | None,
            overrides: tuple[str, ...],
            workload: Path | None,
            **others: Any,
        ) -> Any:
            for name in drawn_by if workload is not None else ():
                if click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
                    raise UserError(f"--{name}: determines a drawn workload, and --workload gives one; leave one out")
            return command(problem=Problem(scenario, mask, horizon, config, overrides, workload), **others)

        for option in reversed(_OPTIONS):
            run = option(run)
        text = "See `rllib-scale scenarios`; or FILE.yaml."
        return click.option("--scenario", default=default, show_default=True, help=text)(run)

    return decorate
