"""DQN and SAC: their updates, schedules and masks, and the policies that come out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from local_ray import LOCAL_RAY
from marks import slow
from networks.observations import fit_of, perturbed
from rl.learned import distance, learner_of, module_of, train, weights_of
from rllib_scale.observation.answers import OPEN
from rllib_scale.rl.methods import is_epoch, training_row

pytestmark = LOCAL_RAY
EPOCH = 64
ONE_ENV = {"num_envs": 1}  # samples exactly what is asked for
ENV = {"episode": {"horizon_s": 3.0}}
MASKED_ENV = {"episode": {"horizon_s": 3.0, "mask": "feasible"}}


def batch_of(algorithm: Any, size: int = 200) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(rows) for name, rows in algorithm.local_replay_buffer.sample(size).items()}


def loss_of(algorithm: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    learner, out = learner_of(algorithm), module_of(algorithm)._forward_train(batch)
    how = {"module_id": "default_policy", "config": learner.config}
    return learner.compute_loss_for_module(batch=batch, fwd_out=out, **how)


def feasible_of(rows: torch.Tensor) -> torch.Tensor:
    """(B, 16) bool: the servers that are idle and large enough, by the features of the rows and not by their mask."""
    return torch.from_numpy(fit_of(rows[:, : 5 + 5 * 16])[:, 0] == OPEN)


@pytest.mark.parametrize("method", ["dqn", "sac"])
def test_updates_follow_the_env_steps(build: Any, method: str) -> None:
    algorithm = build(method, env=ENV, algorithm={"warmup_steps": 100, "steps_per_update": 3})
    result = algorithm.train()
    assert is_epoch(algorithm, result, 1), "an epoch inside the warm-up is one"
    assert not is_epoch(algorithm, result, 2)
    row = training_row(result, 1, EPOCH)
    assert math.isnan(row["value_loss"])
    assert algorithm.updates == 0
    train(algorithm, 3)
    assert 4 * EPOCH <= algorithm.env_steps < 4 * EPOCH + 2, "what is too much does not add up"
    assert algorithm.updates == (algorithm.env_steps - 100) // 3
    steps = {int(state["step"]) for o in learner_of(algorithm)._named_optimizers.values() for state in o.state.values()}
    assert steps == {algorithm.updates}


@pytest.mark.parametrize("method", [slow("dqn"), "sac"])
def test_lean_learner_is_rllibs_but_for_rounding(build: Any, method: str) -> None:
    weights = []
    for rllibs in ((), ("update",)):
        algorithm = build(method, env=ENV, rllibs=rllibs)
        start = weights_of(algorithm)
        train(algorithm, 2)
        weights.append(weights_of(algorithm))
    assert distance(*weights) < 2e-5
    assert distance(weights[0], start) > 2e-3, "the tolerance is far below what is learned"


@pytest.mark.parametrize("rllibs", [(), slow(("runner",))])
@pytest.mark.parametrize("method", ["dqn", "sac"])
def test_exploration_respects_the_mask(build: Any, method: str, rllibs: tuple[str, ...]) -> None:
    algorithm = build(method, env=MASKED_ENV, rllibs=rllibs, algorithm={"warmup_steps": 10_000})
    train(algorithm, 2)
    rows = batch_of(algorithm, 1000)
    assert feasible_of(rows["obs"]).gather(1, rows["actions"][:, None]).all()
    assert len(rows["actions"].unique()) > 5, "it explores"


@pytest.mark.parametrize("rllibs", [(), slow(("runner",))])
def test_epsilon_falls_with_the_env_steps_of_the_training(build: Any, rllibs: tuple[str, ...]) -> None:
    settings = {"epsilon_initial": 1.0, "epsilon_final": 0.0, "epsilon_steps": 2 * EPOCH, "warmup_steps": 10_000}
    algorithm = build("dqn", algorithm=settings, env=ENV, rllibs=rllibs)
    network, greedy = module_of(algorithm).network, []  # nothing is learned: it stays what it is
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
    rows = train(build("dqn", algorithm=settings | ONE_ENV, env=ENV), 4)
    # Updates are made after steps 64 | 80, 96, 112, 128 | 144, 160, 176, 192 | ...
    for row, steps in zip(rows, ([64], [80, 96, 112, 128], [144, 160, 160, 160], [160]), strict=True):
        assert row["epsilon"] == pytest.approx(0.9 - 0.8 * np.mean(steps) / 160)


@pytest.mark.parametrize("double", [True, False])
def test_loss_of_double_and_plain_q_learning(build: Any, double: bool) -> None:
    algorithm = build("dqn", algorithm={"double": double}, env=MASKED_ENV)
    train(algorithm, 1)
    module = module_of(algorithm)
    torch.manual_seed(0)
    perturbed(module, by=0.3)  # far from the weights that anything was copied to
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
    gamma = algorithm.trial.algorithm.gamma
    expected = torch.nn.functional.huber_loss(chosen, batch["rewards"] + gamma * following)
    assert loss_of(algorithm, batch).item() == pytest.approx(expected.item(), rel=1e-5)


def test_q_values_of_the_dueling_network(build: Any) -> None:
    dueling, plain = build("dqn", env=MASKED_ENV), build("dqn", algorithm={"dueling": False}, env=MASKED_ENV)
    train(dueling, 1)
    obs = batch_of(dueling)["obs"]
    feasible = feasible_of(obs)
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
    algorithm = build("dqn", algorithm={"target_update_steps": 2 * EPOCH} | ONE_ENV, env=ENV)
    copied = []
    for _ in range(6):
        algorithm.train()
        module = module_of(algorithm)
        pairs = zip(module.encoder.parameters(), module._target_encoder.parameters(), strict=True)
        copied.append(all(torch.equal(*pair) for pair in pairs))
    assert copied == [False, True, False, True, False, True]


def test_log_probabilities_stay_finite_where_probabilities_are_0(build: Any) -> None:
    algorithm = build("sac", env=MASKED_ENV)
    train(algorithm, 1)
    module = module_of(algorithm)
    with torch.no_grad():
        module.network.head.weight.mul_(1e5)
    batch = batch_of(algorithm)
    out = module._forward_train(batch)
    feasible = feasible_of(batch["obs"])
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
            algorithm = build("sac", algorithm={"target_entropy_share": share}, env=env)
            train(algorithm, 1)
            batch = batch_of(algorithm)
            learner = learner_of(algorithm)
            loss_of(algorithm, batch)
            losses[share] = learner._temp_losses["default_policy", "alpha_loss"].item()
        # The rows are the same: only the target differs, a share of ln of the servers that may be chosen.
        feasible = feasible_of(batch["obs"]).numpy()
        choices = feasible.sum(1) if env is MASKED_ENV else np.full(len(feasible), 16)
        choices = np.where(choices == 0, 16, choices)
        assert len(np.unique(choices)) > 1 or env is ENV
        log_alpha = learner.curr_log_alpha["default_policy"].item()
        for share in (0.25, 0.9):
            expected = -log_alpha * share * np.log(choices).mean()
            assert losses[share] - losses[0.0] == pytest.approx(expected, rel=0.1)


def test_target_networks_move_at_every_gradient_step(build: Any) -> None:
    algorithm = build("sac", algorithm={"target_rate": 0.1, "learning_rate": 1e-12}, env=ENV)
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
