"""Named problems. A policy of any training can be evaluated on each of them, at any number of servers."""

from __future__ import annotations

from rllib_scale.config.cluster import PAPER_TIERS, ClusterConfig
from rllib_scale.config.problem import EnvConfig, EpisodeConfig, RewardConfig, WorkloadConfig


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


SCENARIOS: dict[str, tuple[EnvConfig, str]] = {
    "paper": (EnvConfig(), "the paper's experiment, open points calibrated: overload, 12 s, no mask"),
    "steady-0.5": (_steady(0.5), "offered load 0.5, arrivals for 150 s, then drained; feasible servers only"),
    "steady-0.7": (_steady(0.7), "offered load 0.7, arrivals for 150 s, then drained; feasible servers only"),
    "steady-0.9": (_steady(0.9), "offered load 0.9, arrivals for 150 s, then drained; feasible servers only"),
    "overload-1.1": (_overload(1.1), "offered load 1.1, cut at 150 s; feasible servers only"),
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
}


def scenario(name: str) -> EnvConfig:
    """The named problem at its own number of servers, 16 but for the mixes."""
    if name not in SCENARIOS:
        raise ValueError(f"unknown scenario {name!r}; valid: {', '.join(SCENARIOS)}")
    return SCENARIOS[name][0]
