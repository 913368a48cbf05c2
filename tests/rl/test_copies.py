"""Training scale-any and scale-gate by RLlib's PPO: what the runner returns, resume to the bit, and selection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from local_ray import LOCAL_RAY
from marks import slow
from rl.learned import learner_of, module_of, train, weights_of
from rllib_scale.config import TrialConfig
from rllib_scale.config.schedulers import AdaptivePriceParameters
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import play
from rllib_scale.networks.build import build_network
from rllib_scale.observation.relative import RELATIVE
from rllib_scale.observation.replicas import REPLICAS
from rllib_scale.policies.policy import TrainedPolicy
from rllib_scale.rl.copies_env import FleetCopiesVectorEnv
from rllib_scale.rl.env_runner import GROUP_ADVANTAGE
from rllib_scale.rl.environment import make_env
from rllib_scale.rl.methods import build_algorithm_config
from rllib_scale.schedulers.adaptive_price import AdaptivePrice
from rllib_scale.simulator.replicas.engine import ReplicaEngine
from rllib_scale.sweeps.selected import SelectedLearner
from simulator.replicas.fleets import SMALL, fleet

pytestmark = LOCAL_RAY
SETTINGS: dict[str, Any] = {
    "method": "scale-any",
    "algorithm": {
        **{
            "problems": {"family": {"agents_share": 0.0, "arrivals_s": [10, 10]}},
            "epochs": 4,
            "validation_instances": 2,
        },
        **{"copies": 3, "groups": 4, "steps_per_epoch": 64, "minibatch_size": 32},
    },
    "network": {"embedding_dim": 8},
    "env": {"episode": {"mask": "feasible"}},
}


ON_REPLICAS: dict[str, Any] = SETTINGS | {
    "method": "scale-gate",
    "algorithm": SETTINGS["algorithm"]
    | {"problems": {"servers": [2, 3], "sessions": [8, 14]}, "tail_weight": 0.3, "horizon_s": 40.0},
    "env": {
        "cluster": {"tiers": [{"name": "small", "count": 3, "replica": SMALL}]},
        "service": {"name": "replica", "warm_up_s": 100.0},
        "episode": {"horizon_s": 250.0},
        "reward": {"name": "tasks-in-system"},
    },
}


def settings(**ppo: Any) -> TrialConfig:
    """A short training."""
    return TrialConfig.of(**SETTINGS | {"algorithm": SETTINGS["algorithm"] | ppo})


@pytest.mark.parametrize("scarce", [0.0, 1.0])
def test_copies_of_an_episode_are_played_as_the_policy_plays_it_and_earn_what_tasks_wait(scarce: float) -> None:
    trial = TrialConfig.of(**SETTINGS | {"network": {"scarce": scarce}})
    env: Any = make_env({"trial": trial.model_dump(), "num_envs": 3})
    env.reset(seed=5)
    total, passed = np.zeros(3), np.zeros(3)
    while len(env.deciding):
        servers = env.visits.rows[:, RELATIVE.head() :].reshape(3, -1, RELATIVE.server_dim)
        cost = np.where(servers[:, :, 0] > 0, servers[:, :, RELATIVE.server_column("cost")], np.inf)
        env.step(cost.argmin(1))
        total, passed = total + env.earned, passed + env.passed
    drawn, (seed, group) = env.engine.config, env.get_state().values()
    expected = play(AdaptivePrice(AdaptivePriceParameters(scarce=scarce)), drawn, seed, [group - 1])
    np.testing.assert_array_equal(env.engine.schedule(2), expected.schedule())
    in_the_rules_order = play(AdaptivePrice(), drawn, seed, [group - 1])
    assert (scarce == 0) == np.array_equal(in_the_rules_order.schedule(), expected.schedule())
    metrics = expected.metrics()
    assert metrics["unfinished"] == 0
    assert -total[1] == pytest.approx(metrics["response_mean_s"] * metrics["completed"])


def test_copies_of_a_fleet_go_on_from_one_warm_up_and_earn_what_open_calls_wait() -> None:
    trial = TrialConfig.of(**ON_REPLICAS)
    network = build_network(trial)
    env = FleetCopiesVectorEnv(3, trial.env, 1, trial.algorithm.problems)
    env.reset(seed=5)
    (total, aged, passed), before = np.zeros((3, 3)), 0
    while len(asked := env.deciding):
        parted = env.explores
        before += not parted
        assert parted == (len(asked) > 1 or env.engine.done.any())
        rows = torch.from_numpy(env.rows[asked])
        actions = np.zeros(3, dtype=np.int64)
        actions[asked] = network(*network.inputs.spec.split_mask(rows, masked=True))[1].argmax(1)
        actions[2] = env.engine.num_rows - 1 if parted else actions[2]  # holds whatever it can
        env.step(actions)
        if parted:
            total[asked] += env.earned[asked]
            aged[asked] += env.aged[asked]
            passed[asked] += env.passed[asked]
    assert before > 5
    np.testing.assert_array_equal(env.engine.calls(0), env.engine.calls(1))
    end_s = 250.0
    assert 100.0 < passed[0] <= 150.0
    for b in (0, 2):
        calls = np.concatenate([env.engine.calls(b), env.engine.open_calls(b)])
        at = end_s - passed[b]  # when the copies part
        ends = np.minimum(calls["end_s"], end_s) - calls["asked_s"]
        begins = np.maximum(at, calls["asked_s"]) - calls["asked_s"]
        of = calls["end_s"] > at
        assert -total[b] == pytest.approx((ends - begins)[of].sum())
        assert aged[b] == pytest.approx(((ends**2 - begins**2) / 2)[of].sum())
    assert total[2] < total[0]


def test_scale_gate_begins_as_lmetric_behind_its_gate() -> None:
    env = fleet(end_s=600.0, sessions=12)
    trial = TrialConfig.of(**ON_REPLICAS | {"env": env.model_dump()})
    policy = TrainedPolicy(build_network(trial), trial, 0, "feasible")
    engine, sent, held = ReplicaEngine(policy.problem(env)), 0, 0
    engine.reset([3], [0])
    while not engine.done[0]:
        now, action = engine._fleets[0], int(policy(engine.observation, engine.fit)[0])
        call = now.calls[engine._offered[0]]
        row = now.agents[call["session"], call["agent"]]["active"]
        is_active = (row >= 0) & (now.active[row]["replica"] == np.arange(3))
        has_prefix = now.prefixes[:, call["prefix"]]["active"] > 0 if call["prefix"] >= 0 else np.zeros(3, bool)
        added = call["prompt"] - call["prefix_tokens"] * has_prefix
        is_open = is_active | (now.replicas["active"] + added <= now.replicas["kv_tokens"])
        shown = engine.observation[0, REPLICAS.head() :].reshape(-1, REPLICAS.server_dim)
        new = call["target"] - call["prompt"] * shown[:3, REPLICAS.server_column("hit")]
        score = np.where(is_open, new * (1 + now.replicas["calls"] + now.replicas["waiting"]), np.inf)
        if is_open.any():
            sent += 1
            assert score[action] <= score.min() * (1 + 1e-3) + 1
        elif engine.mask[0, 3]:
            held += 1
            assert action == 3
        engine.step([action])
    assert sent > 50
    assert held > 50


def test_a_runner_returns_decisions_of_whole_groups_with_advantages_over_the_copies(algorithm_of: Any) -> None:
    runner = algorithm_of(settings()).env_runner
    every, some = settings(steps_per_epoch=8192, minibatch_size=8192), runner.sample()
    assert sum(map(len, some)) == 16
    whole = algorithm_of(every).env_runner.sample()
    assert len(whole) == 3
    assert all(episode.is_done for episode in whole)
    returns = [episode.get_rewards().sum() for episode in whole]
    for kept in some:  # a thinned episode keeps the rewards from its first decision that is kept to the end
        assert min(returns) - 1e-3 <= kept.get_rewards().sum() <= 0
    advantages = [episode.get_extra_model_outputs(GROUP_ADVANTAGE) for episode in whole]
    assert abs(sum(each[0] for each in advantages)) < 1e-3  # of the first moment, which all copies share
    assert all(np.isfinite(each).all() for each in advantages)
    found = np.concatenate([episode.get_extra_model_outputs(GROUP_ADVANTAGE) for episode in some])
    assert np.isin(found, np.concatenate(advantages)).all()


@pytest.mark.parametrize(
    ("given", "resources"),
    [
        (SETTINGS, {}),
        (ON_REPLICAS, {}),
        slow(SETTINGS, {"env_runners": 2}),
        slow(SETTINGS, {"learners": 2}),
        slow(ON_REPLICAS, {"env_runners": 2}),
    ],
    ids=lambda value: value.get("method", str(value)),
)
def test_it_learns_and_goes_on_to_the_bit(
    algorithm_of: Any, tmp_path: Path, given: dict[str, Any], resources: dict[str, int]
) -> None:
    trial = TrialConfig.of(**given | {"resources": resources})
    one, other = algorithm_of(trial), algorithm_of(trial)
    start = weights_of(one)
    train(one, 2)
    one.save_to_path(str(tmp_path))
    row = train(one, 1)[0]
    other.restore_from_path(str(tmp_path))
    train(other, 1)
    for name, array in weights_of(one).items():
        np.testing.assert_array_equal(array, weights_of(other)[name], err_msg=name)
    assert any(not np.array_equal(start[name], array) for name, array in weights_of(one).items() if "pointer" in name)
    assert np.isfinite(row["policy_loss"])
    assert one.get_module().masked == (given is ON_REPLICAS), "rows of scale-any end without a mask"
    if not resources.get("learners"):
        assert float(module_of(one).sharpness) == pytest.approx(3.0 ** (3 / 4))
        assert learner_of(one).loss_weights().value == 0.0


def test_the_best_policy_is_exported_and_the_untrained_one_is_the_fallback(tmp_path: Path) -> None:
    learner = SelectedLearner(settings(learning_rate=1e-3, validate_every=1), None)
    try:
        untrained = learner.best
        learner.epoch(1)
        assert np.isfinite(learner.best_score)
        learner.best_score = -np.inf  # nothing is better any more
        kept = learner.best
        assert np.isfinite(learner.epoch(2)["objective_validation"])
        assert learner.best is kept
        learner.save(tmp_path / "state")
        learner.save_policy(tmp_path / "policy", 2)
        learner.best, learner.best_score = untrained, np.inf
        learner.load(tmp_path / "state")
        assert learner.best_score == -np.inf
        assert all(np.array_equal(array, learner.best[name]) for name, array in kept.items())
    finally:
        learner.stop()


def test_settings_that_ask_for_rllibs_own_runner_are_refused() -> None:
    config = build_algorithm_config(settings())
    config.env_runners(episodes_to_numpy=False)
    with pytest.raises(UserError, match=r"algorithm\.copies 3: not with episodes_to_numpy False"):
        config.build_algo()
