"""The engine of fleets: what is answered step by step, in a batch and after a resume is the same episode."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from fleets import fleet
from gymnasium.utils.env_checker import check_env

from rllib_scale.config import EnvConfig
from rllib_scale.envs.vector import SchedulingVectorEnv
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import play
from rllib_scale.live.backend import EventEngine
from rllib_scale.observation.replicas import REPLICAS
from rllib_scale.policies.make import make_policy
from rllib_scale.simulator.replicas import engine as engines
from rllib_scale.simulator.replicas.engine import ReplicaEngine
from rllib_scale.simulator.replicas.state import RECORD, Fleet, new_fleet

ENV = fleet(end_s=300.0, sessions=6, spread_s=60.0)


def random_play(engine: ReplicaEngine, rng: np.random.Generator) -> None:
    while not engine.done.all():
        engine.step(rng.integers(0, engine.num_rows, engine.num_envs))


def test_the_answers_of_a_rule_one_by_one_give_its_episode() -> None:
    by_rule: Any = play(make_policy("lmetric", ENV), ENV, 3, [4])
    went = {(int(call["session"]), int(call["call"])): int(call["replica"]) for call in by_rule.calls()}
    engine, total = ReplicaEngine(ENV), 0.0
    engine.reset([3], [4])
    while not engine.done[0]:
        now = engine._fleets[0]
        call = now.calls[engine._offered[0]]
        key = int(now.sessions[call["session"]]["number"]), int(call["call"])
        engine.step([went.get(key, 0)])
        total += engine.reward[0]
    assert len(went) > 100
    unfinished = by_rule.metrics()["unfinished"]
    ours = {(int(c["session"]), int(c["call"])): c for c in engine.calls()}
    same = [ours[int(c["session"]), int(c["call"])] == c for c in by_rule.calls()[: -5 * unfinished - 5]]
    assert len(same) > 60
    assert all(same)
    assert total == pytest.approx(engine.metrics()["episode_return"])


def test_it_keeps_to_the_contract_of_gymnasium() -> None:
    env = gymnasium.make("rllib_scale.envs:rllib_scale/Scheduling-v0", config=ENV).unwrapped
    check_env(env, skip_render_check=True)
    assert env.observation_space.shape == (REPLICAS.width(4),)
    assert env.action_space == gymnasium.spaces.Discrete(4)
    with pytest.raises(UserError, match="use rllib_scale/Scheduling-v0"):
        gymnasium.make("rllib_scale.envs:rllib_scale/SchedulingCandidates-v0", config=ENV)


def test_a_batch_is_its_fleets_side_by_side() -> None:
    batch, rng = SchedulingVectorEnv(3, ENV), np.random.default_rng(0)
    singles = [SchedulingVectorEnv(1, ENV) for _ in range(3)]
    shown, _ = batch.reset(seed=[7, 8, 9])
    each = [env.reset(seed=[seed])[0] for env, seed in zip(singles, (7, 8, 9), strict=True)]
    np.testing.assert_array_equal(shown, np.concatenate(each))
    assert not np.array_equal(shown[0], shown[1])
    ends = 0
    for _ in range(600):
        actions = rng.integers(0, 4, 3)
        shown, reward, _, truncated, _ = batch.step(actions)
        alone = [env.step(actions[b : b + 1]) for b, env in enumerate(singles)]
        np.testing.assert_array_equal(shown, np.concatenate([step[0] for step in alone]))
        np.testing.assert_array_equal(reward, np.concatenate([step[1] for step in alone]))
        ends += int(truncated.sum())
    assert ends >= 2, "episodes after the first, too"


def test_a_resumed_engine_goes_on_as_if_nothing_had_been() -> None:
    engine, other, rng = ReplicaEngine(ENV, 2), ReplicaEngine(ENV, 2), np.random.default_rng(1)
    engine.reset([1, 2], [0, 0])
    for _ in range(150):
        engine.step(rng.integers(0, 4, 2))
    other.set_state(pickle.loads(pickle.dumps(engine.get_state())))
    copied = pickle.loads(pickle.dumps(engine))
    for each in (engine, other, copied):
        random_play(each, np.random.default_rng(2))
    for each in (other, copied):
        assert each.metrics(1) == engine.metrics(1)
        np.testing.assert_array_equal(each.calls(0), engine.calls(0))


def test_lengths_of_answers_are_seen_where_they_are_known_or_estimated_alone() -> None:
    names = [feature.name for feature in (*REPLICAS.context, *REPLICAS.task)]
    seen, real = dict[str, list[float]](), list[float]()
    for lengths in ("hidden", "estimated", "known"):
        engine = ReplicaEngine(fleet(end_s=300.0, sessions=6, spread_s=60.0, lengths=lengths))
        engine.reset([1], [0])
        seen[lengths], real = [], []
        while not engine.done[0]:
            seen[lengths].append(float(engine.observation[0, names.index("answer")]))
            real.append(float(np.log1p(engine._fleets[0].calls[engine._offered[0]]["output"])))
            engine.step([0])
    assert len(real) > 30
    assert set(seen["hidden"]) == {0.0}
    np.testing.assert_allclose(seen["known"], real, rtol=1e-6)
    assert 0.3 < np.std(np.array(seen["estimated"]) - real) < 0.7, "the error of the problem, 0.5"
    means = {
        (rule, lengths): play(make_policy(rule, env), env, 3, [4]).metrics()["response_mean_s"]
        for rule in ("lmetric", "marginal-price")
        for lengths in ("hidden", "known")
        for env in [fleet(end_s=300.0, sessions=6, spread_s=60.0, lengths=lengths)]
    }
    assert means["lmetric", "hidden"] == means["lmetric", "known"]
    assert means["marginal-price", "hidden"] != means["marginal-price", "known"]


def test_holding_keeps_calls_open_and_is_closed_beside_an_idle_replica() -> None:
    env, held, rng = fleet(end_s=300.0, warm_up_s=0.0, sessions=6, spread_s=60.0), 0, np.random.default_rng(0)
    engine = ReplicaEngine(env)
    engine.reset([1], [0])
    assert engine.mask[0, :4].tolist() == [True, True, True, False], "all replicas are idle"
    while not engine.done[0]:
        may_hold = engine.mask[0, 3] and engine.observation[0, 0] < np.log1p(0.5)
        held += bool(may_hold)
        engine.step([3 if may_hold else rng.integers(3)])
        assert engine.reward[0] <= 0
    metrics = engine.metrics()
    assert metrics["passed"] == held > 10
    assert metrics["held_calls"] > 5
    assert metrics["completed"] > 20


def test_tables_that_grow_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    env = fleet(sessions=8, arrivals_per_s=0.01)
    whole: Any = play(make_policy("lmetric:gate=1", env), env, 5, [0])
    grows: list[int] = []

    def small(*arguments: Any) -> Fleet:
        made = new_fleet(*arguments)
        grows.append(1)
        return made._replace(records=np.zeros(int(made.spare[0]) + 5, RECORD))

    monkeypatch.setattr(engines, "new_fleet", small)
    again: Any = play(make_policy("lmetric:gate=1", env), env, 5, [0])
    assert len(again._records[0]) > 20
    np.testing.assert_array_equal(whole.calls(), again.calls())
    assert whole.metrics() == again.metrics()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"service": {"sessions": 3}}, "small has a replica; valid: with service replica"),
        ({"workload": {"offered_load": 0.5}}, "workload: has no effect with service replica"),
        ({"reward": {"name": "paper"}}, "valid: tasks-in-system"),
        ({"episode": {"horizon_s": 50.0}}, "warm_up_s 100: must be below episode.horizon_s 50"),
        ({"cluster": {"tiers": [{"name": "a", "count": 1, "compute_gflops": 1, "memory_gb": 1}]}}, "missing: a"),
        ({"cluster": {"tiers": [{"name": "a", "count": 1, "replica": "h100/9b"}]}}, "unknown replica 'h100/9b'"),
    ],
)
def test_what_does_not_go_with_the_service_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EnvConfig.model_validate(ENV.model_dump(mode="json", exclude={"service"} & change.keys()) | change)


def test_who_decides_must_know_the_service() -> None:
    with pytest.raises(UserError, match=r"fastest-idle: decides on service fixed; valid here: .*lmetric"):
        make_policy("fastest-idle", ENV)
    with pytest.raises(UserError, match=r"lmetric: decides on service replica; valid here: .*fastest-idle"):
        make_policy("lmetric", EnvConfig())
    with pytest.raises(UserError, match="was trained on service fixed"):
        make_policy("zoo:scale", ENV).problem(ENV)
    with pytest.raises(UserError, match="service replica"):
        EventEngine(ENV)
