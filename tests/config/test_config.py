"""Problems: what the settings of cluster, workload, decisions and information mean."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllib_scale.config import (
    SCENARIOS,
    ClusterConfig,
    DecisionConfig,
    EnvConfig,
    InformationConfig,
    NormalConfig,
    ProblemsConfig,
    TrialConfig,
    WorkloadConfig,
    scale_counts,
    scenario,
)
from rllib_scale.config.sweep import SweepConfig
from rllib_scale.errors import UserError
from rllib_scale.loading import env_from
from workloads.made_trace import made_trace


@pytest.mark.parametrize(
    ("counts", "total", "expected"),
    [
        ((4, 10, 2), 16, (4, 10, 2)),
        ((4, 10, 2), 48, (12, 30, 6)),
        ((5, 3, 1), 7, (4, 2, 1)),  # 3.9, 2.3, 0.8
        ((3, 5, 1), 7, (2, 4, 1)),
        ((1, 1), 5, (3, 2)),
        ((50, 30, 1, 1, 1), 6, (2, 1, 1, 1, 1)),  # 3.6, 2.2, 0.1: each tier keeps a server
        ((6, 6, 3, 1), 1024, (384, 384, 192, 64)),
    ],
)
def test_counts_are_scaled_by_the_largest_remainder(
    counts: tuple[int, ...], total: int, expected: tuple[int, ...]
) -> None:
    assert scale_counts(counts, total) == expected


@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.integers(5, 5000))
def test_scaling_keeps_total_ratio_and_every_tier(ratio: list[int], total: int) -> None:
    scaled = scale_counts(tuple(ratio), total)
    assert sum(scaled) == total
    assert min(scaled) >= 1
    shares = [total * r / sum(ratio) for r in ratio]
    if min(shares) >= 1:
        assert max(abs(a - b) for a, b in zip(scaled, shares, strict=True)) < 1


@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.lists(st.integers(5, 500), max_size=3), st.data())
def test_the_last_of_several_scalings_decides(counts: list[int], through: list[int], data: st.DataObject) -> None:
    names = [{"name": f"t{k}", "count": n, "compute_gflops": 1, "memory_gb": 8} for k, n in enumerate(counts)]
    cluster = ClusterConfig.model_validate({"tiers": names})
    # Equal content is written as it always was: digests leave defaults out.
    assert all("ratio" not in tier for tier in cluster.model_dump(exclude_defaults=True)["tiers"])
    last = data.draw(st.integers(5, 500) | st.just(max(5, sum(counts))))
    chained = cluster
    for servers in (*through, last):
        chained = ClusterConfig.model_validate_json(chained.scaled(servers).model_dump_json(exclude_defaults=True))
    assert chained == cluster.scaled(last)
    assert [t.count for t in chained.tiers] == list(scale_counts(tuple(counts), last))
    assert last != sum(counts) or chained == cluster


def test_a_server_is_a_row_however_many_tasks_it_runs_at_once() -> None:
    small = {"name": "small", "count": 2, "max_concurrent": 3, "compute_gflops": 2.0, "memory_gb": 8.0}
    large = {"name": "large", "count": 4, "compute_gflops": 5.0, "memory_gb": 16.0}
    cluster = ClusterConfig.model_validate({"tiers": [small, large], "empty_slots": 7})
    assert (cluster.num_servers, cluster.num_rows, cluster.num_places) == (6, 6 + 7, 3 * 2 + 4)
    assert cluster.total_gflops == 3 * 2 * 2.0 + 4 * 5.0
    larger = cluster.scaled(12)
    assert [tier.count for tier in larger.tiers] == [4, 8]
    assert (larger.num_rows, larger.num_places, larger.servers) == (12 + 7, 3 * 4 + 8, None)


def test_any_number_of_servers_from_1_is_possible_as_long_as_every_task_fits_what_remains() -> None:
    assert [scale_counts((4, 10, 2), total) for total in (1, 2, 3, 4)] == [(0, 1, 0), (1, 1, 0), (1, 1, 1), (1, 2, 1)]
    env = EnvConfig()
    assert env.at_scale(3).cluster.tier_counts == "small (1), medium (1), large (1)"
    with pytest.raises(ValueError, match=r"memory_gb.high is 80.*tiers of the 2 servers: small \(1\), medium \(1\)"):
        EnvConfig.model_validate({"cluster": {"servers": 2}})
    light = EnvConfig.model_validate({"workload": {"memory_gb": {"mean": 4, "std": 1, "low": 1, "high": 8}}})
    assert light.at_scale(1).cluster.tier_counts == "medium (1)"
    assert SweepConfig.model_validate({"name": "x", "methods": [], "evaluation": {"scales": [1, 2, 3]}})


def test_arrivals_follow_the_servers_or_the_offered_load() -> None:
    assert [EnvConfig().at_scale(n).arrival_rate for n in (16, 32, 48)] == pytest.approx([1.0, 2.0, 3.0])
    for servers in (16, 1024):
        steady, agents = (scenario(name).at_scale(servers) for name in ("steady-0.7", "coding-agents-0.9"))
        work = steady.arrival_rate * steady.workload.mean_workflow_gflop
        assert work == pytest.approx(0.7 * steady.cluster.total_gflops)
        assert agents.arrival_rate_of(100.0) == pytest.approx(0.9 * agents.cluster.total_gflops / 100)


@pytest.mark.parametrize(
    "dist",
    [
        NormalConfig(mean=10, std=3, low=1, bound="truncate"),
        NormalConfig(mean=4, std=3, low=3, high=6, bound="truncate"),
        NormalConfig(mean=4, std=3, low=3, high=6),
        NormalConfig(mean=4, std=3, low=3),
        NormalConfig(mean=2, std=0, low=3),
        NormalConfig(mean=9, std=0, low=3, high=6),
    ],
)
def test_mean_compute_is_that_of_the_bounded_distribution(dist: NormalConfig) -> None:
    x = np.random.default_rng(0).normal(dist.mean, dist.std, 1_000_000)
    high = np.inf if dist.high is None else dist.high
    x = x[(x >= dist.low) & (x <= high)] if dist.bound == "truncate" else np.clip(x, dist.low, high)
    workload = WorkloadConfig(compute_gflop=dist, min_tasks=2, max_tasks=5)
    assert workload.mean_workflow_gflop / 3.5 == pytest.approx(x.mean(), abs=0.01)


def test_bounds_of_a_normal_may_touch_three_deviations() -> None:
    NormalConfig(mean=1, std=1, low=4, bound="truncate")
    NormalConfig(mean=9, std=1, low=1, high=6, bound="truncate")
    NormalConfig(mean=1, std=1, low=3, high=3)


@pytest.mark.parametrize(
    ("decision", "mask", "masked", "offers_startable", "costs_time"),
    [
        ({}, "none", False, False, True),
        ({}, "feasible", True, True, False),
        ({"on_busy": "reserve"}, "none", True, False, False),
        ({"on_busy": "reserve", "offer": "startable"}, "none", True, True, False),
    ],
)
def test_what_a_wrong_answer_costs(
    decision: dict[str, Any], mask: str, masked: bool, offers_startable: bool, costs_time: bool
) -> None:
    env = EnvConfig.model_validate({"decision": decision}).with_mask(mask)  # type: ignore[arg-type]
    assert (env.masked, env.offers_startable, env.costs_time) == (masked, offers_startable, costs_time)


@pytest.mark.parametrize(
    ("settings", "offered", "order", "by_arrival"),
    [
        ({"candidates": 5}, 1, "longest-hop", False),
        ({"ties": "first-arrival"}, 1, "longest-hop", True),
        ({"order": "first-ready", "ties": "first-arrival"}, 1, "first-ready", False),
        ({"order": "first-arrival"}, 1, "first-arrival", True),
        ({"order": "open", "candidates": 5, "open_by": "first-arrival"}, 5, "first-arrival", True),
    ],
)
def test_which_tasks_are_offered(settings: dict[str, Any], offered: int, order: str, by_arrival: bool) -> None:
    decision = DecisionConfig.model_validate(settings)
    assert (decision.offered, decision.level1, decision.ties_by_arrival) == (offered, order, by_arrival)


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ({}, "clairvoyant"),
        ({"estimate_error": 0.5}, "estimates"),
        ({"straggler_share": 0.1}, "estimates"),
        ({"straggler_share": 0.1, "straggler_factor": 1}, "clairvoyant"),
        ({"workflows": "revealed", "estimate_error": 0.5}, "revealed estimates"),
    ],
)
def test_what_is_told_has_a_label(settings: dict[str, Any], label: str) -> None:
    assert InformationConfig.model_validate(settings).label == label


@pytest.mark.parametrize(
    ("servers", "episode", "is_too_large"),
    [
        (16, {"horizon_s": 1.8e6}, False),
        (16, {"horizon_s": 1.9e6}, True),
        (16, {"horizon_s": 1.9e6, "arrivals_until_s": 10}, False),
        (16, {"horizon_s": 1.9e6, "max_decisions": 10}, True),
        (100_000, {"horizon_s": 28}, False),
        (100_000, {"horizon_s": 30}, True),
    ],
)
def test_an_episode_that_never_ends_is_refused(servers: int, episode: dict[str, Any], is_too_large: bool) -> None:
    """At most 1e7 tasks, and 1e11 tasks x servers; a workflow has 5.5, and 1/16 arrive a second and server."""
    env = EnvConfig.model_validate({"episode": episode}).at_scale(servers)
    if not is_too_large:
        env.check_size()
        return
    with pytest.raises(UserError, match=rf"on {servers:,} servers \(arrivals for"):
        env.check_size()


def test_a_trace_is_held_to_its_content_wherever_it_lies(tmp_path: Path) -> None:
    trace, copy = tmp_path / "trace.json", tmp_path / "copy.json"
    for path in (trace, copy):
        made_trace().save(path)
    env, other = (env_from({"workload": {"trace": p.name}}, "x", tmp_path) for p in (trace, copy))
    assert env.workload.trace is not None
    assert (env.workload.trace.path, env.workload.trace.location) == (trace, str(trace))
    assert env_from(env.model_dump(mode="json"), "x") == env
    assert TrialConfig.of(env=env).trial_id == TrialConfig.of(env=other).trial_id != TrialConfig.of().trial_id
    made_trace(seed=1).save(trace)
    with pytest.raises(UserError, match=r"workload.trace.file: .*trace.json has changed"):
        _ = env.workload.trace.path
    trace.unlink()
    with pytest.raises(UserError, match=r"workload.trace.file: .*cannot be read .*; it must be at this path"):
        _ = env.workload.trace.path


def test_a_trace_has_sessions_to_train_on_and_others_to_evaluate(tmp_path: Path) -> None:
    made_trace().save(tmp_path / "trace.json")
    env = EnvConfig.model_validate({"workload": {"trace": str(tmp_path / "trace.json")}})
    assert not env.workload.is_synthetic
    assert TrialConfig.of(env=env).env == env.with_part("train")
    env.with_part("test").check_unseen("mine", TrialConfig.of(env=env).env)
    for part in ("train", "all"):
        with pytest.raises(
            UserError, match=rf"workload.trace.part {part}: mine was trained on sessions of .*part test"
        ):
            env.with_part(part).check_unseen("mine", TrialConfig.of(env=env).env)
    with pytest.raises(ValueError, match=r"env.workload.trace.part test: a training draws from train"):
        TrialConfig.of(env=env.with_part("test"))
    recorded = env.model_dump()["workload"]["trace"] | {"arrivals": "recorded"}
    with pytest.raises(ValueError, match=r"offered_load: with trace.arrivals recorded"):
        WorkloadConfig.model_validate({"trace": recorded, "offered_load": 0.5})
    with pytest.raises(ValueError, match=r"algorithm.problems.offered_load: with trace.arrivals recorded"):
        TrialConfig.of(
            env={"workload": {"trace": recorded}},  # type: ignore[arg-type]
            algorithm={"problems": {"offered_load": (0.5, 0.6)}},  # type: ignore[arg-type]
        )


def test_problems_of_a_training_are_drawn_in_their_ranges() -> None:
    env = SCENARIOS["steady-0.7"][0]
    problems = ProblemsConfig(servers=(8, 16, 32), offered_load=(0.4, 1.2))
    drawn = [problems.draw(env, u, v) for u, v in ((0.0, 0.0), (0.34, 0.5), (0.99, 0.75))]
    assert [problem.cluster.num_servers for problem in drawn] == [8, 16, 32]
    np.testing.assert_allclose([problem.workload.offered_load or 0 for problem in drawn], [0.4, 0.8, 1.0])
    assert all(problem.episode == env.episode for problem in drawn)
    assert ProblemsConfig().draw(env, 0.5, 0.5) == env
