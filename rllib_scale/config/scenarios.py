"""Named problems. A policy of any training can be evaluated on each of them, at any number of servers."""

from __future__ import annotations

import inspect

from rllib_scale import plugins
from rllib_scale.config.cluster import PAPER_TIERS, ChangesConfig, ClusterConfig
from rllib_scale.config.problem import (
    CommunicationConfig,
    DecisionConfig,
    EnvConfig,
    EpisodeConfig,
    InformationConfig,
    ObservationConfig,
    RewardConfig,
)
from rllib_scale.config.workload import WorkloadConfig
from rllib_scale.errors import UserError


def _steady(
    load: float, cluster: ClusterConfig | None = None, reward: RewardConfig | None = None, **workload: object
) -> EnvConfig:
    """Arrivals for 150 s at `load` times the capacity, then drained; feasible servers only."""
    return EnvConfig(
        cluster=cluster or ClusterConfig(),
        workload=WorkloadConfig.model_validate({"offered_load": load, **workload}),
        episode=EpisodeConfig(horizon_s=550.0, arrivals_until_s=150.0, mask="feasible"),
        reward=reward or RewardConfig(),
    )


def _mix(small: int, medium: int, large: int) -> ClusterConfig:
    counts = (small, medium, large)
    return ClusterConfig(
        tiers=tuple(tier.model_copy(update={"count": n}) for tier, n in zip(PAPER_TIERS, counts, strict=True))
    )


def _overload(load: float) -> EnvConfig:
    steady = _steady(load)
    cut = EpisodeConfig(horizon_s=150.0, mask="feasible")
    return steady.model_copy(update={"episode": cut})


def _agents(load: float, **workload: object) -> EnvConfig:
    """Turns of coding agents for an hour at `load` times the capacity of servers of a language model, then drained.

    A turn lasts a quarter of an hour on average, tools included, and one in a hundred two hours: hence the times.
    Moving a context takes server time. Units and scales are about the means of these demands.
    """
    return EnvConfig(
        cluster=ClusterConfig.model_validate("llm-16"),
        workload=WorkloadConfig.model_validate({"offered_load": load, "fitted": "coding-agents", **workload}),
        episode=EpisodeConfig(horizon_s=10_800.0, arrivals_until_s=3600.0, mask="feasible"),
        communication=CommunicationConfig(mode="transfer"),
        reward=RewardConfig(time_scale_s=10.0, communication_scale_s=2.0),
        observation=ObservationConfig(
            task_compute_max_gflop=20.0,
            server_compute_max_gflops=2.5,
            memory_max_gb=160.0,
            output_unit_gb=40.0,
            delay_unit_s=60.0,
            time_unit_s=5.0,
        ),
    )


def _told(**information: float) -> EnvConfig:
    return _steady(0.7).model_copy(update={"information": InformationConfig.model_validate(information)})


def _changing(**changes: object) -> EnvConfig:
    return _steady(0.7, ClusterConfig(changes=ChangesConfig.model_validate(changes)))


def _schedule(share: float, *changes: tuple[float, str]) -> tuple[dict[str, object], ...]:
    """That share of each tier, its last servers, at these times."""
    return tuple({"time_s": time, "event": event, "share": share} for time, event in changes)


_BURST = (1.0,) * 5 + (10.0,) * 2 + (1.0,) * 8
"""Of 10 s each."""
_GROWING = ClusterConfig.model_validate(
    {"servers": 48, "changes": {"schedule": _schedule(2 / 3, (50.0, "join"), (100.0, "drain"))}}
)
TROUBLE: dict[str, tuple[EnvConfig, str]] = {
    "estimates-30": (_told(estimate_error=0.3), "as steady-0.7, demands are seen with an error of 30 %"),
    "estimates-100": (_told(estimate_error=1.0), "as steady-0.7, demands are seen with an error of 100 %"),
    "stragglers": (
        _told(straggler_share=0.05),
        "as steady-0.7, 5 % of the tasks take 5 times what is known of them: a load of 0.84 in all",
    ),
    "failures-1": (
        _changing(failures_per_1000_h=1.0, repair_s=60.0),
        "as steady-0.7, a server fails once in 1 000 h (an episode of 16 is 0.8), repaired in 60 s on average",
    ),
    "failures-10": (
        _changing(failures_per_1000_h=10.0, repair_s=60.0),
        "as failures-1, ten times in 1 000 h: in one episode of 100 or so anything fails at all",
    ),
    "failures-often": (
        _changing(failures_per_1000_h=10_000.0, repair_s=60.0),
        "as failures-1, ten times an hour: 7 or so failures in an episode of 16, a load of 0.82",
    ),
    "spot": (
        _changing(schedule=_schedule(0.5, (40.0, "drain"), (70.0, "fail"), (110.0, "join"))),
        "as steady-0.7, half of the servers are to leave at 40 s, are gone at 70 s and return at 110 s",
    ),
    "burst": (
        _steady(0.7 * sum(_BURST) / len(_BURST), rate_wave={"period_s": 150.0, "levels": _BURST}),
        "as steady-0.7, with 10 times the arrivals from 50 to 70 s",
    ),
    "grow-shrink": (
        _steady(0.7 * 5 / 9, _GROWING, rate_wave={"period_s": 150.0, "levels": (1.0, 3.0, 1.0)}),
        "16 servers, 48 from 50 to 100 s, 16 again, and a load of 0.7 of those; of N servers a third, all, a third",
    ),
    "preemption": (
        _steady(0.7).model_copy(update={"decision": DecisionConfig(preemption="resume")}),
        "as steady-0.7, running tasks may be stopped and go on where they were",
    ),
}
"""What goes wrong, one thing at a time, beside steady-0.7."""
SCENARIOS: dict[str, tuple[EnvConfig, str]] = {
    "paper": (EnvConfig(), "the paper's experiment, open points calibrated: overload, 12 s, no mask"),
    "steady-0.5": (_steady(0.5), "offered load 0.5, arrivals for 150 s, then drained; feasible servers only"),
    "steady-0.7": (_steady(0.7), "offered load 0.7, arrivals for 150 s, then drained; feasible servers only"),
    "steady-0.9": (_steady(0.9), "offered load 0.9, arrivals for 150 s, then drained; feasible servers only"),
    "overload-1.1": (_overload(1.1), "offered load 1.1, cut at 150 s; feasible servers only"),
    "shift": (
        _steady(2 / 3, rate_wave={"period_s": 150.0, "levels": (0.4, 1.0, 0.6)}),
        "as steady-0.7, the offered load is 0.4 for 50 s, then 1.0, then 0.6",
    ),
    "day": (
        _steady(0.7, rate_wave={"period_s": 150.0, "amplitude": 0.5}),
        "as steady-0.7, the load goes from 0.7 up to 1.05, down to 0.35 and back, a sine",
    ),
    "mix-small-heavy": (
        # Not more of them: 84 % of the work needs more than the 8 GB of a Small server.
        _steady(0.7, _mix(8, 8, 2)),
        "as steady-0.7 on Small : Medium : Large = 8 : 8 : 2, the paper's 32 GFLOPS from 18 servers",
    ),
    "mix-large-heavy": (
        _steady(0.7, _mix(2, 3, 6)),
        "as steady-0.7 on Small : Medium : Large = 2 : 3 : 6, the paper's 32 GFLOPS from 11 servers",
    ),
    "deep": (
        _steady(0.7, topology="chain", min_tasks=8, max_tasks=16),
        "as steady-0.7 with chains of 8 to 16 tasks",
    ),
    "wide": (
        _steady(0.7, topology="fork-join", min_tasks=10, max_tasks=18),
        "as steady-0.7 with fan-outs of 8 to 16 tasks between a first and a last one",
    ),
    "energy": (
        _steady(0.7, reward=RewardConfig(energy_weight=1.0, energy_scale_j=1600.0, energy_power="above-idle")),
        "as steady-0.7, the reward counts the energy above idle (beta = 1): it matters in training",
    ),
    "coding-agents-0.5": (_agents(0.5), "turns of coding agents as fitted to traces, LLM servers, offered load 0.5"),
    "coding-agents-0.7": (_agents(0.7), "as coding-agents-0.5 at offered load 0.7"),
    "coding-agents-0.9": (_agents(0.9), "as coding-agents-0.5 at offered load 0.9"),
    "coding-agents-day": (
        _agents(0.6, rate_wave={"period_s": 3600.0, "amplitude": 0.5}),
        "as coding-agents-0.5, the load goes from 0.6 up to 0.9, down to 0.3 and back, a sine",
    ),
    **TROUBLE,
}


def scenario(name: str) -> EnvConfig:
    """The named problem at its own number of servers, 16 but for the mixes and for grow-shrink.

    One of one's own, by its import path or entry point (`rllib_scale.plugins`), is an EnvConfig, or a function without
    arguments that gives one.

    Raises:
        UserError: there is none, it cannot be imported, or it is something else.
    """
    if name in SCENARIOS:
        return SCENARIOS[name][0]
    found = plugins.load("scenario", name, list(SCENARIOS))[0]
    if inspect.isfunction(found):
        found = plugins.call("scenario", name, found)
    if not isinstance(found, EnvConfig):
        valid = "a rllib_scale.config.EnvConfig, or a function without arguments that gives one"
        raise UserError(f"scenario {name!r}: is a {type(found).__name__}; valid: {valid}")
    return EnvConfig.model_validate(found.model_dump())  # plain data: no worker needs the module
