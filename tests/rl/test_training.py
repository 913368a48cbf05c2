"""Real trainings on a local Ray: the paper's update, its schedules, and what every method learns and logs."""

from __future__ import annotations

import itertools
import math
import statistics
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.utils.metrics.metrics_logger import MetricsLogger

from local_ray import LOCAL_RAY
from marks import slow
from networks.observations import NETWORKS
from rl.learned import SHORT, learner_of, module_of, same, train, trial_of, weights_of
from rllib_scale.config import METHODS, EnvConfig, EpisodeConfig
from rllib_scale.evaluation.play import evaluate
from rllib_scale.policies.policy import load_policy, save_policy
from rllib_scale.results.columns import TRAINING_COLUMNS
from rllib_scale.rl.methods import EPISODE_METRICS, EpisodeMetrics, training_row

pytestmark = LOCAL_RAY
OF_OTHERS = {"q_mean", "epsilon", "temperature", "reference_kl", "imitation_loss", "agreement"}
OF_OTHERS |= {"objective", "objective_validation", "step_size"}
"""Columns that PPO fills with nothing."""
LEARNED = list(TRAINING_COLUMNS)[list(TRAINING_COLUMNS).index("policy_loss") :]
LOGGED = {
    "ppo": {*TRAINING_COLUMNS}
    - {*itertools.takewhile(lambda name: name != "policy_loss", TRAINING_COLUMNS)}
    - OF_OTHERS,
    "dqn": {"value_loss", "gradient_norm", "learning_rate", "q_mean", "epsilon"},
    "sac": {"value_loss", "gradient_norm", "learning_rate", "q_mean", "policy_loss", "entropy", "temperature"},
}
"""What is logged of what is learned."""


def test_a_training_that_can_learn_nothing_fails(build: Any) -> None:
    algorithm = build(algorithm=SHORT | {"value_coefficient": 1e15, "reward_unit": 1e-15})
    with pytest.raises(FloatingPointError, match="no gradient of the epoch's 4 updates is finite"):
        algorithm.train()


@pytest.mark.parametrize("rllibs", [(), ("update",)], ids=str)
def test_one_epoch_is_the_papers_update(build: Any, rllibs: tuple[str, ...]) -> None:
    algorithm = build(as_in_the_paper=True, rllibs=rllibs)
    learner = learner_of(algorithm)
    minibatches: list[torch.Tensor] = []

    def record(*, batch: dict[str, torch.Tensor], **kwargs: Any) -> torch.Tensor:
        minibatches.append(torch.cat((batch["obs"], batch["action_logp"][:, None]), 1))
        return loss(batch=batch, **kwargs)

    loss, learner.compute_loss_for_module = learner.compute_loss_for_module, record
    before = weights_of(algorithm)
    result = algorithm.train()
    assert result["learners"]["default_policy"]["num_module_steps_trained"] == 8192
    (optimizer,) = learner._named_optimizers.values()
    assert {int(state["step"]) for state in optimizer.state.values()} == {32}
    assert [len(rows) for rows in minibatches] == [256] * 32
    passes = [torch.cat(minibatches[i : i + 4]) for i in range(0, 32, 4)]
    everything = passes[0].unique(dim=0, return_counts=True)
    for one, other in itertools.pairwise(passes):
        assert not torch.equal(one, other), "every pass has an order of its own"
        again = other.unique(dim=0, return_counts=True)
        assert all(torch.equal(*pair) for pair in zip(everything, again, strict=True))
    # Consecutive decisions of one environment differ little in remaining time; shuffled rows are strangers.
    remaining = [rows[:, 7 : 5 + 80 : 5] for rows in passes]
    jumps = [(rows[1:] - rows[:-1]).abs().mean().item() for rows in remaining]
    assert jumps[0] == pytest.approx(np.mean(jumps[1:]), rel=0.1), "the first pass is shuffled like the others"
    assert not same(before, weights_of(algorithm))


def test_row_of_the_training_table(build: Any) -> None:
    algorithm = build(as_in_the_paper=True)
    result = algorithm.train()
    row = training_row(result, 1, 1024)
    names = list(TRAINING_COLUMNS)
    assert set(names[names.index("episode_return") :]) | {"epoch", "env_steps"} == set(row)
    assert (row["epoch"], row["env_steps"]) == (1, 1024)
    assert {name for name, value in row.items() if not math.isfinite(value)} == OF_OTHERS
    # RLlib's own mean is over the same episodes, this being the first epoch.
    assert row["episode_return"] == pytest.approx(result["env_runners"]["episode_return_mean"], rel=1e-5)
    assert 0 < row["completed"] < 50
    assert 2.5 < row["response_mean_s"] < 12
    assert row["entropy"] == pytest.approx(math.log(16), abs=0.5)
    assert 0 <= row["kl"] < 0.1
    assert 1 <= row["feature_effective_rank"] <= 16
    assert row["gradient_norm"] > 0
    assert row["explained_variance"] < 1
    assert row["srr_decorrelation"] == pytest.approx(240 * row["feature_covariance"], rel=0.3)
    row = training_row({"env_runners": {}}, 3, 64)
    assert math.isnan(row["episode_return"]), "no episode has ended"
    assert math.isnan(row["policy_loss"])


def test_means_of_a_new_process_are_those_of_one_that_goes_on() -> None:
    """A runner that has logged before reports of rounds without an end of an episode, too, which are no values."""
    means_of_processes(np.random.default_rng(0).uniform(3, 7, 13).tolist())


@pytest.mark.parametrize("values", [[5.25], [5.25, 3.5]])
def test_the_mean_of_an_epoch_in_which_few_episodes_end(values: list[float]) -> None:
    means_of_processes(values)


def means_of_processes(values: list[float]) -> None:
    rows = []
    for goes_on in (True, False):
        runner, algorithm = MetricsLogger(), MetricsLogger(root=True)
        for epoch in ([[3.0]], [[], [], [], *([value] for value in values)])[not goes_on :]:
            for ended in epoch:
                for value in ended:
                    infos = {"metrics": dict.fromkeys(EPISODE_METRICS, value)}
                    episode = SimpleNamespace(get_infos=lambda _, infos=infos: infos)
                    EpisodeMetrics().on_episode_end(episode=episode, metrics_logger=runner)
                algorithm.aggregate([runner.reduce()], key="env_runners")
            row = training_row(algorithm.reduce(compile=True), 1, 64)
        rows.append([row[name] for name in EPISODE_METRICS])
    assert rows[0] == rows[1] == [statistics.fmean(values)] * 3


def test_masked_rows_do_not_count(build: Any) -> None:
    algorithm = build()
    learner, module, size = learner_of(algorithm), module_of(algorithm), 16
    learner.epoch = 1
    learner.before_gradient_based_update(timesteps={})
    torch.manual_seed(0)
    batch = {
        "obs": torch.rand(size, 85),
        "actions": torch.randint(16, (size,)),
        "action_logp": -2.7 + 0.1 * torch.randn(size),
        "advantages": torch.randn(size),
        "value_targets": torch.randn(size),
    }

    def loss(rows: dict[str, torch.Tensor]) -> float:
        how = {"module_id": "default_policy", "config": None, "fwd_out": module.forward_train(rows)}
        return learner.compute_loss_for_module(batch=rows, **how).item()

    expected = loss({name: values[:12] for name, values in batch.items()})
    assert loss(batch | {"loss_mask": torch.arange(size) < 12}) == pytest.approx(expected, rel=1e-5)
    assert loss(batch) != pytest.approx(expected, rel=1e-2)


def test_learning_rate_is_the_cosine_and_gradients_are_clipped_by_their_global_norm(build: Any) -> None:
    algorithm = build(algorithm=SHORT | {"gradient_clip": 0.01})
    (optimizer,) = learner_of(algorithm)._named_optimizers.values()
    for epoch in range(5):
        (row,) = train(algorithm, 1)
        expected = 5e-5 + 2.5e-4 * (1 + math.cos(math.pi * epoch / 4)) / 2
        assert row["learning_rate"] == pytest.approx(expected, abs=1e-7)
        assert [group["lr"] for group in optimizer.param_groups] == [pytest.approx(expected, abs=1e-7)]
        norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in module_of(algorithm).parameters()])
        assert norm.item() == pytest.approx(0.01, rel=1e-3)
        assert row["gradient_norm"] > 0.02, "the norm before clipping is logged"


def test_lambdas_reach_the_loss(build: Any) -> None:
    regulariser = {"lambda_decorrelation": 3.0, "lambda_kl": 0.5, "ramp_start_epoch": 0, "ramp_epochs": 1}
    weights, first, last = [], [], []
    for method in ("crossattn", "scale"):  # one after the other: they share the generators of the process
        algorithm = build(method, srr=regulariser)
        first += train(algorithm, 1)
        weights.append(weights_of(algorithm))
        last.append(train(algorithm, 3)[-1])
    assert same(*weights), "no regularisation in the first epoch: the ramp is 0"
    assert [row["srr_ramp"] for row in first] == [0, 0]
    assert [row["srr_lambda_decorrelation"] for row in last] == [0, 3.0]
    assert [row["srr_lambda_kl"] for row in last] == [0, 0.5]
    assert last[1]["srr_ramp"] == 1
    assert last[1]["feature_covariance"] < 0.8 * last[0]["feature_covariance"]


BY_DEFAULT = ("scale", "ppo", "dqn", "sac")


@pytest.mark.parametrize("method", [name if name in BY_DEFAULT else slow(name) for name in NETWORKS])
def test_every_method_trains_and_its_policy_plays(build: Any, tmp_path: Path, method: str) -> None:
    preset = METHODS[method]
    env = EnvConfig(episode=EpisodeConfig(horizon_s=3.0))
    env = env.with_mask("feasible") if method == "dqn" else env
    algorithm = build(method, env=env)
    before = weights_of(algorithm)
    for row in train(algorithm, 2):
        assert {name for name in LEARNED if math.isfinite(row[name])} == LOGGED[preset.algorithm["name"]]
        assert not abs(row["q_mean"]) > 100, "masked servers do not count"
    assert (row["srr_lambda_decorrelation"] > 0) == (preset.srr is not None)
    after = weights_of(algorithm)
    for name in before:
        assert np.array_equal(before[name], after[name]) == (".inputs." in name) or "_target_" in name, name

    save_policy(tmp_path, algorithm.get_module().network, trial_of(algorithm), epochs=2)
    policy, trained = load_policy(tmp_path), module_of(algorithm).network.state_dict()
    assert all(torch.equal(value, trained[name]) for name, value in policy.network.state_dict().items())
    assert all(row["decisions"] > 0 for row in evaluate(policy, policy.trial.env, seed=1, episodes=2))
