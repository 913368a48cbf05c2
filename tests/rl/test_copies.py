"""Training scale-any by RLlib's PPO: what the runner returns, resume to the bit, and selection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from local_ray import LOCAL_RAY
from marks import slow
from rl.learned import learner_of, module_of, train, weights_of
from rllib_scale.config import TrialConfig
from rllib_scale.config.schedulers import AdaptivePriceParameters
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import play
from rllib_scale.observation.relative import RELATIVE
from rllib_scale.rl.env_runner import GROUP_ADVANTAGE
from rllib_scale.rl.environment import make_env
from rllib_scale.rl.methods import build_algorithm_config
from rllib_scale.schedulers.adaptive_price import AdaptivePrice
from rllib_scale.sweeps.selected import SelectedLearner

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


@pytest.mark.parametrize("resources", [{}, slow({"env_runners": 2}), slow({"learners": 2})], ids=str)
def test_it_learns_and_goes_on_to_the_bit(algorithm_of: Any, tmp_path: Path, resources: dict[str, int]) -> None:
    trial = TrialConfig.of(**SETTINGS | {"resources": resources})
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
    assert not one.get_module().masked, "rows of scale-any end without a mask"
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
