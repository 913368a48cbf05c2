"""DQN and SAC: their updates, schedules and masks, determinism, restore, and the policies that come out."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from local_ray import LOCAL_RAY
from marks import slow
from networks.observations import SPEC, fit_of
from rl.learned import learner_of, same, weights_of
from rllib_scale.config import (
    DQNConfig,
    EnvConfig,
    EpisodeConfig,
    SACConfig,
    TrainingConfig,
    TrialConfig,
    TrialResources,
)

ray = pytest.importorskip("ray")
pytestmark = LOCAL_RAY

from ray.rllib.algorithms.algorithm import Algorithm  # noqa: E402

from rllib_scale.evaluation.play import evaluate  # noqa: E402
from rllib_scale.observation.answers import OPEN  # noqa: E402
from rllib_scale.policies.policy import load_policy, save_policy  # noqa: E402
from rllib_scale.rl.methods import is_epoch, training_row  # noqa: E402

METHODS = ("dqn", "sac")
EPOCH = 64
SHORT = TrainingConfig(epochs=4, steps_per_epoch=EPOCH, minibatch_size=32, num_envs=2)
ONE_ENV = SHORT.model_copy(update={"num_envs": 1})  # samples exactly what is asked for
ENV = EnvConfig(episode=EpisodeConfig(horizon_s=3.0))
MASKED_ENV = EnvConfig(episode=EpisodeConfig(horizon_s=3.0, mask="feasible"))
QUICK = {"warmup_steps": 32, "steps_per_round": 16, "batch_size": 16, "buffer_size": 1024}


@pytest.fixture
def build(algorithm_of: Callable[[TrialConfig], Algorithm]) -> Callable[..., Algorithm]:
    """Builds algorithms by method, settings of DQN or SAC, and of the trial."""

    def build_one(method: str, settings: dict[str, Any] | None = None, **trial: Any) -> Algorithm:
        own = QUICK | (settings or {})
        trial = {"training": SHORT, "env": ENV, "dqn": DQNConfig(), "sac": SACConfig()} | trial
        trial[method] = trial[method].model_copy(update=own)
        return algorithm_of(TrialConfig(method=method, **trial))

    return build_one


def module_of(algorithm: Algorithm) -> Any:
    return learner_of(algorithm).module["default_policy"].unwrapped()


def train(algorithm: Algorithm, epochs: int) -> list[dict[str, Any]]:
    first = algorithm.env_steps // EPOCH + 1
    return [training_row(algorithm.train(), first + i, EPOCH) for i in range(epochs)]


def batch_of(algorithm: Algorithm, size: int = 200) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(rows) for name, rows in algorithm.local_replay_buffer.sample(size).items()}


def loss_of(algorithm: Algorithm, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    learner, module = learner_of(algorithm), module_of(algorithm)
    return learner.compute_loss_for_module(
        module_id="default_policy", config=learner.config, batch=batch, fwd_out=module._forward_train(batch)
    )


def feasible_of(rows: torch.Tensor, env: EnvConfig) -> torch.Tensor:
    """(B, N) bool: the servers that are idle and large enough, by the features of the rows and not by their mask."""
    return torch.from_numpy(fit_of(SPEC.split_mask(rows, env.masked)[0])[:, 0] == OPEN)


def scramble(module: torch.nn.Module, seed: int) -> None:
    """Weights far from those that anything was copied to."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))


# ---------------------------------------------------------------------- training


@pytest.mark.parametrize(
    ("method", "mask"), [("dqn", "feasible"), ("sac", "none"), slow("dqn", "none"), slow("sac", "feasible")]
)
def test_trains_and_evaluates(build: Any, tmp_path: Path, method: str, mask: str) -> None:
    env = ENV if mask == "none" else MASKED_ENV
    algorithm = build(method, env=env)
    before = weights_of(algorithm)
    rows = train(algorithm, 2)
    expected = {"value_loss", "gradient_norm", "learning_rate", "q_mean"}
    expected |= {"epsilon"} if method == "dqn" else {"policy_loss", "entropy", "temperature"}
    for row in rows:
        names = list(row)
        assert {name for name in names[names.index("policy_loss") :] if math.isfinite(row[name])} == expected
        assert abs(row["q_mean"]) < 100, "masked servers do not count"
    after = weights_of(algorithm)
    still = {name for name in after if np.array_equal(before[name], after[name])}
    assert all(".inputs." in name or "_target_" in name for name in still)

    save_policy(tmp_path / "policy", algorithm.get_module().network, algorithm.trial, epochs=2)
    policy = load_policy(tmp_path / "policy", mask=mask)
    rows = torch.from_numpy(algorithm.local_replay_buffer.sample(50)["obs"])
    network = module_of(algorithm).network
    observations, may = network.inputs.spec.split_mask(rows, env.masked)
    scores = network(observations, may)[1].detach().numpy()
    fit = fit_of(observations)
    feasible = fit[:, 0] == OPEN
    shown = feasible if mask == "feasible" else np.ones_like(feasible)
    np.testing.assert_allclose(policy.scores(observations.numpy())[shown], scores[shown], atol=1e-5)
    np.testing.assert_array_equal(policy(observations.numpy(), fit), np.where(shown, scores, -np.inf).argmax(1))
    metrics = evaluate(policy, env, seed=1, episodes=3)
    assert all(row["decisions"] > 0 for row in metrics)


@pytest.mark.parametrize("method", METHODS)
def test_updates_follow_the_env_steps(build: Any, method: str) -> None:
    algorithm = build(method, {"warmup_steps": 100, "steps_per_update": 3})
    result = algorithm.train()
    assert is_epoch(algorithm, result, 1), "an epoch inside the warm-up is one"
    assert not is_epoch(algorithm, result, 2)
    row = training_row(result, 1, EPOCH)
    assert math.isnan(row["value_loss"])
    assert algorithm.updates == 0
    train(algorithm, 3)
    assert 4 * EPOCH <= algorithm.env_steps < 4 * EPOCH + SHORT.num_envs, "what is too much does not add up"
    assert algorithm.updates == (algorithm.env_steps - 100) // 3
    steps = {int(state["step"]) for o in learner_of(algorithm)._named_optimizers.values() for state in o.state.values()}
    assert steps == {algorithm.updates}


@pytest.mark.slow
def test_an_iteration_without_environment_runners_is_no_epoch(build: Any) -> None:
    algorithm = build("dqn", resources=TrialResources(env_runners=1))
    assert is_epoch(algorithm, algorithm.train(), 1)
    for actor in algorithm.env_runner_group._worker_manager.actors().values():
        ray.kill(actor, no_restart=False)
    iterations = 0
    while not is_epoch(algorithm, algorithm.train(), 2):
        iterations += 1
        assert iterations < 20
    assert 2 * EPOCH <= algorithm.env_steps < 3 * EPOCH


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_same_seed_same_weights(build: Any, method: str) -> None:
    weights, rows = [], []
    for seed in (5, 5, 6):
        algorithm = build(method, seed=seed)
        rows.append(repr(train(algorithm, 2)))
        weights.append(weights_of(algorithm))
    assert same(weights[0], weights[1])
    assert rows[0] == rows[1]
    assert not same(weights[0], weights[2])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "resources"),
    [("dqn", {}), ("sac", {}), ("sac", {"learner": "rllib"})],
    ids=["dqn", "sac", "sac-rllib-learner"],
)
def test_restored_training_is_the_uninterrupted_one(
    build: Any, tmp_path: Path, method: str, resources: dict[str, Any]
) -> None:
    settings = {"target_update_steps": 50} if method == "dqn" else {}
    algorithm = build(method, settings, resources=TrialResources(**resources))
    train(algorithm, 2)
    algorithm.save_to_path(str(tmp_path / "checkpoint"))
    expected, weights = train(algorithm, 2), weights_of(algorithm)
    updates = algorithm.updates
    algorithm.stop()  # its runners' CPUs are needed
    restored = build(method, settings, resources=TrialResources(**resources))
    train(restored, 1)  # whatever it did before must not matter
    restored.restore_from_path(str(tmp_path / "checkpoint"))
    assert repr(train(restored, 2)) == repr(expected)
    assert same(weights_of(restored), weights)
    assert restored.updates == updates


@pytest.mark.parametrize("method", [slow("dqn"), "sac"])
def test_lean_learner_is_rllibs_but_for_rounding(build: Any, method: str) -> None:
    weights = []
    for learner in ("lean", "rllib"):
        algorithm = build(method, resources=TrialResources(learner=learner))
        start = weights_of(algorithm)
        train(algorithm, 2)
        weights.append(weights_of(algorithm))
    for name, lean in weights[0].items():
        np.testing.assert_allclose(lean, weights[1][name], atol=2e-5, err_msg=name)
    moved = max(np.abs(weights[0][name] - start[name]).max() for name in start)
    assert moved > 2e-3, "the tolerance is far below what is learned"


@pytest.mark.parametrize("mask", [slow("none"), "feasible"])
@pytest.mark.parametrize("sampler", ["array", slow("rllib")])
@pytest.mark.parametrize("method", METHODS)
def test_exploration_respects_the_mask(build: Any, method: str, sampler: str, mask: str) -> None:
    env = ENV if mask == "none" else MASKED_ENV
    algorithm = build(method, {"warmup_steps": 10_000}, env=env, resources=TrialResources(sampler=sampler))
    train(algorithm, 2)
    rows = algorithm.local_replay_buffer.sample(1000)
    feasible = feasible_of(torch.from_numpy(rows["obs"]), env).numpy()
    share = feasible[np.arange(1000), rows["actions"]].mean()
    if mask == "feasible":
        assert share == 1
        assert len(np.unique(rows["actions"])) > 5, "it explores"
    else:
        assert 0.02 < share < 0.8


# ---------------------------------------------------------------------- DQN


@pytest.mark.parametrize("sampler", ["array", slow("rllib")])
def test_epsilon_falls_with_the_env_steps_of_the_training(build: Any, sampler: str) -> None:
    settings = {"epsilon_initial": 1.0, "epsilon_final": 0.0, "epsilon_steps": 2 * EPOCH, "warmup_steps": 10_000}
    algorithm = build("dqn", settings, resources=TrialResources(sampler=sampler))
    network = module_of(algorithm).network  # nothing is learned: it stays what it is
    greedy = []
    add = algorithm.local_replay_buffer.add

    def watch(episodes: list[Any]) -> None:
        for episode in episodes:
            best = network(torch.from_numpy(np.array(episode.get_observations()[:-1])))[1].argmax(1).numpy()
            greedy[-1] += (best == episode.get_actions()).tolist()
        add(episodes)

    algorithm.local_replay_buffer.add = watch
    for _ in range(4):
        greedy.append([])
        algorithm.train()
    means = [np.mean(epoch) for epoch in greedy]
    assert means[0] < 0.55, "between epsilon 1 and 0.5"
    assert means[0] < means[1] < 1
    assert means[2] == means[3] == 1, "after the schedule's end nothing is random"


def test_epsilon_of_the_rows_is_linear(build: Any) -> None:
    settings = {"epsilon_initial": 0.9, "epsilon_final": 0.1, "epsilon_steps": 160, "warmup_steps": 48}
    rows = train(build("dqn", settings, training=ONE_ENV), 4)
    # Updates are made after steps 64 | 80, 96, 112, 128 | 144, 160, 176, 192 | ...
    for row, steps in zip(rows, ([64], [80, 96, 112, 128], [144, 160, 160, 160], [160]), strict=True):
        assert row["epsilon"] == pytest.approx(0.9 - 0.8 * np.mean(steps) / 160)


@pytest.mark.parametrize("double", [True, False])
def test_loss_of_double_and_plain_q_learning(build: Any, double: bool) -> None:
    algorithm = build("dqn", {"double": double}, env=MASKED_ENV)
    train(algorithm, 1)
    module = module_of(algorithm)
    scramble(module, 0)
    batch = batch_of(algorithm)
    with torch.no_grad():
        q = module.compute_q_values({"obs": batch["obs"]})["qf_preds"]
        online = module.compute_q_values({"obs": batch["new_obs"]})["qf_preds"]
        target = module.forward_target({"obs": batch["new_obs"]})["qf_preds"]
    best = (online if double else target).argmax(1, keepdim=True)
    other = (target if double else online).argmax(1, keepdim=True)
    assert not torch.equal(best, other), "online and target network disagree, or the test means nothing"
    following = target.gather(1, best)[:, 0] * ~batch["terminateds"]
    chosen = q.gather(1, batch["actions"][:, None])[:, 0]
    expected = torch.nn.functional.huber_loss(chosen, batch["rewards"] + SHORT.gamma * following)
    assert loss_of(algorithm, batch).item() == pytest.approx(expected.item(), rel=1e-5)


def test_q_values_of_the_dueling_network(build: Any) -> None:
    dueling, plain = build("dqn", env=MASKED_ENV), build("dqn", {"dueling": False}, env=MASKED_ENV)
    train(dueling, 1)
    obs = batch_of(dueling)["obs"]
    feasible = feasible_of(obs, MASKED_ENV)
    open_servers = feasible | ~feasible.any(1, keepdim=True)
    assert not feasible.all()
    with torch.no_grad():
        q = module_of(dueling).compute_q_values({"obs": obs})["qf_preds"]
        seen = module_of(dueling).network.inputs.spec.split_mask(obs, masked=True)
        f, scores = module_of(dueling).network(*seen)
        value = module_of(dueling).vf(f)
        assert torch.equal(q == -torch.inf, ~open_servers)
        mean = torch.where(open_servers, q, 0).sum(1) / open_servers.sum(1)
        torch.testing.assert_close(mean, value, atol=1e-5, rtol=1e-5)
        assert torch.equal(q.argmax(1), scores.argmax(1)), "what is exported orders the servers as Q does"
        q = module_of(plain).compute_q_values({"obs": obs})["qf_preds"]
        assert torch.equal(q[open_servers], module_of(plain).network(*seen)[1][open_servers])
    assert not hasattr(module_of(plain), "vf")


def test_the_target_network_is_copied_at_its_intervals(build: Any) -> None:
    algorithm = build("dqn", {"target_update_steps": 2 * EPOCH}, training=ONE_ENV)
    copied = []
    for _ in range(6):
        algorithm.train()
        module = module_of(algorithm)
        pairs = zip(module.encoder.parameters(), module._target_encoder.parameters(), strict=True)
        copied.append(all(torch.equal(*pair) for pair in pairs))
    assert copied == [False, True, False, True, False, True]


# ---------------------------------------------------------------------- SAC


def test_log_probabilities_stay_finite_where_probabilities_are_0(build: Any) -> None:
    algorithm = build("sac", env=MASKED_ENV)
    train(algorithm, 1)
    module = module_of(algorithm)
    with torch.no_grad():
        module.network.head.weight.mul_(1e5)
    batch = batch_of(algorithm)
    out = module._forward_train(batch)
    feasible = feasible_of(batch["obs"], MASKED_ENV)
    closed = ~feasible & feasible.any(1, keepdim=True)
    for name in ("action_probs", "action_probs_next"):
        assert (out[name] == 0).any(1).all(), "the logits are extreme, or the test means nothing"
    assert (out["action_probs"][closed] == 0).all()
    assert all(torch.isfinite(values).all() for values in out.values())
    loss = loss_of(algorithm, batch)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(p.grad.isfinite().all() for p in module.parameters() if p.grad is not None)
    assert module.network.head.weight.grad is not None


def test_the_entropy_target_reaches_the_loss(build: Any) -> None:
    for env in (ENV, MASKED_ENV):
        losses = {}
        for share in (0.0, 0.25, 0.9):
            algorithm = build("sac", {"target_entropy_share": share}, env=env)
            train(algorithm, 1)
            batch = batch_of(algorithm)
            learner = learner_of(algorithm)
            loss_of(algorithm, batch)
            losses[share] = learner._temp_losses["default_policy", "alpha_loss"].item()
        # The rows are the same: only the target differs, a share of ln of the servers that may be chosen.
        feasible = feasible_of(batch["obs"], env).numpy()
        choices = feasible.sum(1) if env is MASKED_ENV else np.full(len(feasible), env.cluster.num_slots)
        choices = np.where(choices == 0, env.cluster.num_slots, choices)
        assert len(np.unique(choices)) > 1 or env is ENV
        log_alpha = learner.curr_log_alpha["default_policy"].item()
        for share in (0.25, 0.9):
            expected = -log_alpha * share * np.log(choices).mean()
            assert losses[share] - losses[0.0] == pytest.approx(expected, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("share", "sign"), [(0.0, -1), (0.999, 1)])
def test_the_temperature_moves_the_entropy_to_its_target(build: Any, share: float, sign: int) -> None:
    algorithm = build("sac", {"target_entropy_share": share, "learning_rate": 1e-3})
    scramble(module_of(algorithm).network, 0)  # no longer the uniform policy
    temperatures = [row["temperature"] for row in train(algorithm, 3)]
    assert np.all(sign * np.diff([0.1, *temperatures]) > 0)


def test_target_networks_move_at_every_gradient_step(build: Any) -> None:
    algorithm = build("sac", {"target_rate": 0.1, "learning_rate": 1e-12})
    module = module_of(algorithm)
    for _, target in module.get_target_network_pairs():
        for parameter in target.parameters():
            parameter.data.zero_()
    train(algorithm, 2)
    assert algorithm.updates > 16
    share = 1 - 0.9**algorithm.updates
    for network, target in module.get_target_network_pairs():
        for parameter, moved in zip(network.parameters(), target.parameters(), strict=True):
            torch.testing.assert_close(moved, share * parameter, atol=1e-6, rtol=1e-4)
