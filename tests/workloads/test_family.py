"""The sampler of problems: ranges, determinism, independent streams, and problems that every scheduler can play."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from rllib_scale.config import EnvConfig, family
from rllib_scale.config.family import KINDS, AgentProblems, BasicProblems, Family
from rllib_scale.evaluation.play import evaluate
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.workloads.family import draw, fixed_problems, fixed_seed

DRAWN = 200


def _of_kind(kind: str) -> list[EnvConfig]:
    return [draw(Family(agents_share=float(kind == "agents")), 7, index) for index in range(DRAWN)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_lies_in_its_range(kind: str) -> None:
    ranges: BasicProblems = getattr(Family(), kind)
    for env in _of_kind(kind):
        cluster, workload = env.cluster, env.workload
        speeds = np.array([tier.compute_gflops for tier in cluster.tiers])
        ratios = speeds[1:] / speeds[:-1]
        low, high = ranges.speed_ratio
        assert ranges.servers[0] <= cluster.num_servers <= ranges.servers[1]
        assert ranges.tiers[0] <= len(speeds) <= ranges.tiers[1]
        assert ((ratios > low - 1e-3) & (ratios < high + 1e-3)).all()
        assert speeds[-1] < 8.001 * speeds[0]
        assert all(ranges.places[0] <= tier.max_concurrent <= ranges.places[1] for tier in cluster.tiers)
        assert ranges.offered_load[0] <= workload.offered_load <= ranges.offered_load[1]  # type: ignore[operator]
        assert ranges.tasks[0] <= workload.min_tasks <= workload.max_tasks <= ranges.tasks[1]
        assert 0.0999 <= workload.compute_gflop.std / workload.compute_gflop.mean <= 1.0001
        assert (workload.delay_s is None) == (ranges.delay is None)
        move_s = workload.output_gb.mean / cluster.bandwidth_gb_s
        assert ranges.move[0] <= move_s / 5 * 1.0001
        assert move_s / 5 <= ranges.move[1] * 1.0001
        assert (env.episode.arrivals_until_s, env.masked, env.costs_time) == (120, True, False)


@pytest.mark.parametrize("kind", KINDS)
def test_problems_are_canonical_and_task_s_scales_all_times(kind: str) -> None:
    share = float(kind == "agents")
    slow = Family(agents_share=share, task_s=(25, 25))
    for index, env in enumerate(_of_kind(kind)[:20]):
        mean_tasks = (env.workload.min_tasks + env.workload.max_tasks) / 2
        assert env.workload.mean_workflow_gflop == pytest.approx(10 * mean_tasks, rel=1e-4)
        assert env.cluster.total_gflops == pytest.approx(2 * env.cluster.num_places, rel=1e-4)
        other = draw(slow, 7, index)
        assert other.cluster.tiers == env.cluster.tiers
        assert other.workload.offered_load == env.workload.offered_load
        assert other.workload.compute_gflop.mean == pytest.approx(5 * env.workload.compute_gflop.mean, rel=1e-4)
        assert other.cluster.bandwidth_gb_s == pytest.approx(env.cluster.bandwidth_gb_s / 5, rel=1e-4)
        assert other.episode.arrivals_until_s == 5 * env.episode.arrivals_until_s  # type: ignore[operator]
        if env.workload.delay_s is not None and other.workload.delay_s is not None:
            assert other.workload.delay_s.mean == pytest.approx(5 * env.workload.delay_s.mean, rel=1e-4)


def test_memory_never_makes_a_part_of_a_cluster_scarcer_than_all_of_it() -> None:
    growing = 0
    for env in _of_kind("basic"):
        memory = [tier.memory_gb for tier in env.cluster.tiers]
        capacity = np.array([tier.count * tier.compute_gflops for tier in env.cluster.tiers])
        assert memory == sorted(memory)
        assert env.workload.memory_gb.high == memory[-1]
        growing += len(set(memory)) > 1
        for k, gb in enumerate(memory[:-1]):
            too_large = 1 - family.MEMORY_GB.cdf(gb) if gb < 80 else 0.0
            assert too_large <= capacity[k + 1 :].sum() / capacity.sum() + 1e-4
    assert growing > DRAWN / 5
    for env in _of_kind("agents"):
        assert env.workload.memory_gb.high <= min(tier.memory_gb for tier in env.cluster.tiers)  # type: ignore[operator]


def test_a_problem_depends_on_seed_and_index_alone_and_no_two_are_alike() -> None:
    drawn = {(seed, index): draw(Family(), seed, index) for seed in (0, 1, 2**32) for index in (0, 1, 2**32, 3)}
    again = [draw(Family(), *key) for key in reversed(drawn)]
    assert again == list(drawn.values())[::-1]
    tests = [env for kind in KINDS for env in fixed_problems(kind, revealed=False)]
    for one, other in itertools.combinations([*drawn.values(), *tests], 2):
        assert one.cluster.bandwidth_gb_s != other.cluster.bandwidth_gb_s


def test_test_problems_are_the_same_whole_and_revealed_with_one_seed_each() -> None:
    whole, revealed = (fixed_problems("agents", hidden) for hidden in (False, True))
    assert len(whole) == 120
    for one, other in zip(whole, revealed, strict=True):
        assert (one.information.workflows, other.information.workflows) == ("whole", "revealed")
        assert one == other.model_copy(update={"information": one.information})
    seeds = {fixed_seed(kind, k, seed) for kind in KINDS for k in range(120) for seed in (1000, 1001)}
    assert len(seeds) == 480
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_the_stratum_decides_kind_and_information_alone() -> None:
    envs = [draw(Family(), 3, 4, stratum) for stratum in (0.1, 0.3, 0.6, 0.9)]
    assert [env.workload.delay_s is not None for env in envs] == [False, False, True, True]
    assert [env.information.workflows for env in envs] == ["whole", "revealed", "revealed", "whole"]
    assert envs[0] == envs[1].model_copy(update={"information": envs[0].information})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"task_s": [2, 1]}, "task_s: low 2 is above high 1"),
        ({"arrivals_s": [60, 7200]}, "3600"),
        ({"basic": {"servers": [4, 8], "tiers": [1, 6]}}, "6 tiers need 6 servers"),
        ({"basic": {"most_speed_ratio": 1.5}}, "4 tiers are further apart"),
        ({"agents": {"tasks": [9, 3]}}, "tasks: low 9 is above high 3"),
    ],
)
def test_impossible_ranges_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Family.model_validate(settings)


def test_settings_of_a_kind_that_are_left_out_are_those_of_the_kind() -> None:
    changed = Family.model_validate({"agents": {"servers": [4, 8]}}).agents
    assert changed == AgentProblems().model_copy(update={"servers": (4, 8)})


@pytest.mark.parametrize("kind", KINDS)
def test_fastest_idle_plays_drawn_problems_to_their_end(kind: str) -> None:
    short = Family(arrivals_s=(10, 10), agents_share=float(kind == "agents"))
    for index in range(8):
        env = draw(short, 1, index)
        row = evaluate(make_scheduler("fastest-idle", env.observation, env.episode.mask), env, 5, 1)[0]
        assert row["workflows_completed"] == row["workflows_arrived"] > 0
        assert row["unfinished"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("revealed", [False, True])
def test_fastest_idle_plays_every_test_problem_to_its_end(kind: family.Kind, revealed: bool) -> None:
    for k, env in enumerate(fixed_problems(kind, revealed)):
        rule = make_scheduler("fastest-idle", env.observation, env.episode.mask)
        row = evaluate(rule, env, fixed_seed(kind, k, 1000), 1)[0]
        assert row["unfinished"] == 0
        assert row["duration_s"] < env.episode.horizon_s / 2
