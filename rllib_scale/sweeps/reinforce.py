"""REINFORCE for policies that are dispatchers: the gradient from several episodes of one workload.

Source: R. J. Williams, Machine Learning 8, 1992. The baseline is that of DeepRM (HotNets 2016, sec. 3.3) and, as
arrivals are the same in all episodes of a workload, Decima's input-dependent one (H. Mao et al., ICLR 2019, arXiv
1807.02264), aligned by time: the mean cost of the episodes of the workload from the same moment on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from rllib_scale.config import EnvConfig, Reinforce, TrialConfig
from rllib_scale.policies.dispatch_policy import DispatchPolicy, Step
from rllib_scale.policies.policy import new_network
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload

Weights = Mapping[str, np.ndarray]
STEPS_AT_ONCE = 256
"""Choices whose probabilities are computed side by side in an update."""


def network_of(weights: Weights, trial: TrialConfig) -> Any:
    """The network of a trial with these weights."""
    network = new_network(trial)
    network.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in weights.items()})
    return network


class WorkloadGradient(NamedTuple):
    """Gradient and statistics of the episodes of one workload; means over its choices."""

    gradients: list[np.ndarray]  # of the loss, by the network's parameters, in their order
    decisions: int  # choices, in all episodes
    policy_loss: float
    entropy: float  # nat
    response_s: float  # mean over episodes of the mean over tasks; unfinished tasks count up to the end
    completed: float  # tasks an episode


def learn_from(
    weights: Weights, trial: TrialConfig, env: EnvConfig, seed: int, entropy_coefficient: float
) -> WorkloadGradient:
    """Play a workload in `algorithm.episodes` episodes with actions drawn from a policy, and learn from it.

    Args:
        weights: weights of the network, by name.
        trial: of a method that REINFORCE trains.
        env: the problem.
        seed: seed of the workload (its episode 0), and with the number of an episode of the policy's draws.
        entropy_coefficient: weight of the entropy bonus.
    """
    network = network_of(weights, trial)
    policy = DispatchPolicy(network, trial, 0, "sample")
    engine, times, steps = roll_out(policy, env, seed, reinforce_of(trial).episodes)
    advantages = advantages_of(engine, generate(env, seed, 0), times, trial)
    flat = [step for of_one in steps for step in of_one]
    policy_loss = entropy = 0.0
    for first in range(0, len(flat), STEPS_AT_ONCE):
        part = slice(first, first + STEPS_AT_ONCE)
        logs, entropies = network.log_probabilities(flat[part])
        lost = -(logs * torch.from_numpy(advantages[part])).sum() / len(flat)
        spread = entropies.sum() / len(flat)
        (lost - entropy_coefficient * spread).backward()
        policy_loss, entropy = policy_loss + lost.item(), entropy + spread.item()
    metrics = [engine.metrics(b) for b in range(engine.num_envs)]
    return WorkloadGradient(
        [np.zeros(p.shape, np.float32) if p.grad is None else p.grad.numpy() for p in network.parameters()],
        len(flat),
        policy_loss,
        entropy,
        float(np.mean([m["response_censored_s"] for m in metrics])),
        float(np.mean([m["completed"] for m in metrics])),
    )


def reinforce_of(trial: TrialConfig) -> Reinforce:
    """The settings of a training by REINFORCE."""
    assert isinstance(trial.algorithm, Reinforce)
    return trial.algorithm


def roll_out(
    policy: DispatchPolicy, env: EnvConfig, seed: int, episodes: int
) -> tuple[Engine, list[np.ndarray], list[list[Step]]]:
    """Play one workload several times side by side.

    Returns:
        The engine at the end; of each episode when its choices were made (D,) [s], and the choices.
    """
    policy.problem(env)
    engine = Engine(env, episodes)
    engine.reset([seed] * episodes, [0] * episodes)
    policy.reset([(seed, episode) for episode in range(episodes)])
    times: list[list[float]] = [[] for _ in range(episodes)]
    steps: dict[int, list[Step]] = {b: [] for b in range(episodes)}
    while not engine.done.all():
        going = np.flatnonzero(~engine.done).tolist()
        moments = policy.decide([engine.snapshot(b) for b in going], steps)
        for b, now in zip(going, moments, strict=True):
            times[b] += [now.snapshot.clock_s] * (len(steps[b]) - len(times[b]))
        answers = [now.answers() for now in moments]
        numbers = np.repeat(going, [len(of_one) for of_one in answers])
        engine.dispatch(np.column_stack([numbers, np.concatenate(answers)]))
    return engine, [np.array(of_one) for of_one in times], list(steps.values())


def advantages_of(engine: Engine, workload: Workload, times: Sequence[np.ndarray], trial: TrialConfig) -> np.ndarray:
    """(D,) float32 of all choices, episode after episode: by how much less than on average it costs from there on.

    In units of their deviation over the workload, so that large problems and small ones count the same.
    """
    settings = reinforce_of(trial)
    changes = [system_of(engine, b, workload, settings.objective == "workflows") for b in range(engine.num_envs)]
    found = []
    for b, at in enumerate(times):
        costs = [
            cost_to_go(*change, float(engine.clock[k]), at, settings.discount_s) for k, change in enumerate(changes)
        ]
        found.append(np.mean(costs, axis=0) - costs[b])
    flat = np.concatenate(found)
    deviation = float(flat.std()) if len(flat) else 0.0
    return (flat / deviation if deviation > 0 else flat).astype(np.float32)


def system_of(engine: Engine, b: int, workload: Workload, whole: bool) -> tuple[np.ndarray, np.ndarray]:
    """When something came (A,) and went (F,) in environment b [s]: tasks, with their workflow; or `whole` workflows."""
    end, schedule = float(engine.clock[b]), engine.schedule(b)
    finished = schedule[schedule["outcome"] == "finished"]
    sizes = np.diff(workload.task_offsets)
    there = workload.arrival_s <= end
    if not whole:
        return np.repeat(workload.arrival_s, sizes)[np.repeat(there, sizes)], np.sort(finished["finish_s"])
    last = np.zeros(len(sizes))
    np.maximum.at(last, finished["workflow"], finished["finish_s"])
    complete = np.bincount(finished["workflow"], minlength=len(sizes)) == sizes
    return workload.arrival_s[there], np.sort(last[complete])


def cost_to_go(
    came: np.ndarray, went: np.ndarray, end_s: float, at_s: np.ndarray, discount_s: float | None
) -> np.ndarray:
    """(D,) integral of the number in the system from each time to the end [s], discounted or not.

    Args:
        came: (A,) times of arrivals [s].
        went: (F,) times of departures [s].
        end_s: end of the episode.
        at_s: (D,) times, ascending [s]; after the end the integral is 0.
        discount_s: time after which the weight is 1/e; None: the weight is 1.
    """
    times = np.unique(np.concatenate([came, went, at_s, [end_s]]))
    times = times[times <= end_s]
    inside = np.searchsorted(came, times, side="right") - np.searchsorted(went, times, side="right")
    steps = np.diff(times)
    if discount_s is None:
        keeps, lasts = np.ones(len(steps)), steps
    else:
        keeps = np.exp(-steps / discount_s)
        lasts = discount_s * (1 - keeps)
    gains = inside[:-1] * lasts
    total, costs = 0.0, [0.0]
    for keep, gain in zip(keeps[::-1].tolist(), gains[::-1].tolist(), strict=True):
        total = gain + keep * total
        costs.append(total)
    backwards = np.array(costs[::-1])
    return np.where(at_s <= end_s, backwards[np.minimum(np.searchsorted(times, at_s), len(times) - 1)], 0.0)
