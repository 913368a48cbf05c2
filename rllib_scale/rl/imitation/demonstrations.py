"""Choices of an expert in episodes that it plays itself, as training rows. Only `collect` uses Ray.

The expert gets the learner's question: on which server the offered task starts, or for which server it waits. A rule
decides task by task anyway. A dispatcher, which has another order of the waiting tasks, is asked about the task that
the problem's order (`decision.order`) offers, with all servers as the earlier answers of the round left them. So its
choice of servers is cloned, and its order only where the problem has the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from rllib_scale.config import EnvConfig, Imitation, TrialConfig
from rllib_scale.errors import UserError
from rllib_scale.networks.build import input_spec
from rllib_scale.networks.inputs import InputSpec
from rllib_scale.observation.answers import OPEN
from rllib_scale.observation.policy import Policy
from rllib_scale.policies.policy import load_policy
from rllib_scale.rl.drawn_problems import draw_problem
from rllib_scale.rl.vector_env import training_rows
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.random_numbers import mixed_seed, words_of

EPISODES_AT_ONCE = 8
"""Chunk size, fixed so that results do not depend on the workers."""
_IMITATION_STREAM = 3
"""Spawn key that keeps these seeds apart from any other use of the same numbers."""


class Demonstrations(NamedTuple):
    """T decisions of an expert, by episode and environment in the order in which they were made."""

    passed: int  # other decisions, which a learner cannot make: a server that it may not choose, or none
    rows: np.ndarray  # (T, width) float32: rows of a training environment, see `InputSpec.split_mask`
    chosen: np.ndarray  # (T,) int64 server
    alike: np.ndarray  # (T, N) bool: servers that are as good an answer, see `alike`
    choosable: np.ndarray  # (T, N) bool: servers that a network may choose


def demonstration_seed(trial_seed: int) -> int:
    """Seed of the workloads that an expert shows to a trial of that seed: 63 mixed bits."""
    return mixed_seed(_IMITATION_STREAM, *words_of(trial_seed))


def demonstrate(trial: TrialConfig, episodes: Sequence[int]) -> Demonstrations:
    """Let a trial's expert play these episodes of its demonstrations to their ends.

    Raises:
        UserError: the expert cannot play the problem.
    """
    seed, problems = demonstration_seed(trial.seed), trial.algorithm.problems
    if problems is None:
        return _play(trial, trial.env, seed, episodes)
    return joined([_play(trial, draw_problem(problems, trial.env, seed, k), seed, [k]) for k in episodes])


def expert_of(trial: TrialConfig, env: EnvConfig) -> Policy:
    """The expert of a trial, for one of its problems.

    Raises:
        UserError: it is a policy that is not there, has changed, or decides otherwise than the problem asks for.
    """
    settings = _settings(trial)
    folder = settings.policy
    if folder is None:
        rule = make_scheduler(settings.expert, env.observation, env.episode.mask)
        if not rule.can_be_asked:
            raise UserError(f"algorithm.expert {rule.name}: cannot be asked about one task; valid: asked task by task")
        if not rule.per_task and env.decision.on_busy != "reserve":
            raise UserError(f"algorithm.expert {rule.name}: lets tasks wait; valid: env.decision.on_busy reserve")
        return rule
    expert = load_policy(folder, env.episode.mask, trust=trial.encoder)
    if expert.per_task:
        own = expert.problem(env)
        differs = own.decision != env.decision or own.episode != env.episode
    elif not expert.can_be_asked:
        raise UserError(
            f"algorithm.expert: {folder}: a policy of method {expert.trial.method} cannot be asked about one task; "
            "valid: of a method that decides task by task, or context-price"
        )
    else:
        differs = env.decision.on_busy != "reserve"
    if differs:
        raise UserError(
            f"algorithm.expert: {folder}: a policy of method {expert.trial.method} decides in rounds of its own, other "
            "than env.decision and env.episode.mask of this training; valid: those of the policy"
        )
    return expert


def _settings(trial: TrialConfig) -> Imitation:
    assert isinstance(trial.algorithm, Imitation)
    return trial.algorithm


def _play(trial: TrialConfig, env: EnvConfig, seed: int, episodes: Sequence[int]) -> Demonstrations:
    """Episodes of one problem, side by side."""
    count, expert = len(episodes), cast(Any, expert_of(trial, env))
    engine = shown = Engine(env, count)
    if expert.per_task and expert.observation != env.observation:
        # It reads other features than the learner: a second engine, in step with the first, shows it those.
        shown = Engine(env.model_copy(update={"observation": expert.observation}), count)
    engines = [engine] if shown is engine else [engine, shown]
    for each in engines:
        each.reset([seed] * count, list(episodes))
    expert.reset([(seed, episode) for episode in episodes])
    spec, passed = input_spec(trial), 0
    none, nowhere = np.zeros(0, dtype=np.int64), np.zeros((0, engine.num_rows), dtype=bool)
    kept: list[tuple[np.ndarray, ...]] = [(none, training_rows(engine)[:0], none, nowhere, nowhere)]
    while not engine.done.all():
        going, rows = ~engine.done, training_rows(engine)
        if expert.per_task:
            actions = expert(shown.observation, shown.fit)
        else:
            offered = np.array([(engine.offers(b) or [(-1, -1)])[0] for b in range(count)])
            actions = expert.servers_for(engine.view(), offered)
        choosable = choosable_rows(spec, rows, env)
        # No network can name a server that is masked for it: such decisions are played, and not learned from.
        learns = going & (actions >= 0) & choosable[np.arange(count), actions]
        passed += int((going & ~learns).sum())
        same = alike(spec, rows[learns], engine.fit[learns, 0], actions[learns], env) & choosable[learns]
        kept.append((np.flatnonzero(learns), rows[learns], actions[learns], same, choosable[learns]))
        for each in engines:
            each.step(np.where(actions < 0, engine.num_rows, actions))  # who names no server passes
    return _by_episode(kept, passed)


def servers_of(spec: InputSpec, rows: np.ndarray, env: EnvConfig) -> np.ndarray:
    """(T, N, features) of the servers in rows of a training environment."""
    observations, _ = spec.split_mask(rows, env.masked)
    servers = spec.num_servers(observations.shape[1])
    return observations[:, spec.task_dim :].reshape(len(rows), servers, spec.server_dim)


def choosable_rows(spec: InputSpec, rows: np.ndarray, env: EnvConfig) -> np.ndarray:
    """(T, N) bool: rows of the action space that are a server which the mask leaves open."""
    there: np.ndarray = servers_of(spec, rows, env)[:, :, spec.server_capacity] != 0
    _, mask = spec.split_mask(rows, env.masked)
    return there if mask is None else there & mask


def alike(spec: InputSpec, rows: np.ndarray, fit: np.ndarray, chosen: np.ndarray, env: EnvConfig) -> np.ndarray:
    """(T, N) bool: servers that are as good an answer as the chosen one, itself included.

    Those that look the same, feature by feature: a network that treats servers as a set gives them one probability.
    And with `on_busy: step`, where the task cannot start on the chosen one, all on which it cannot: it waits a clock
    step, whichever is named.

    Args:
        spec: columns of the rows.
        rows: (T, width) of a training environment.
        fit: (T, N) how each server is for the task on offer, as `Engine.fit`.
        chosen: (T,).
        env: the problem.
    """
    servers, at = servers_of(spec, rows, env), np.arange(len(rows))
    same: np.ndarray = (servers == servers[at, chosen][:, None]).all(axis=2) & (fit == fit[at, chosen][:, None])
    if env.decision.on_busy == "step":
        same |= (fit != OPEN) & (fit[at, chosen] != OPEN)[:, None]
    return same


def _by_episode(kept: list[tuple[np.ndarray, ...]], passed: int) -> Demonstrations:
    """Sorted by environment: the rows of an episode are contiguous."""
    which, *columns = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    order = np.argsort(which, kind="stable")
    return Demonstrations(passed, *(column[order] for column in columns))


def joined(parts: Sequence[Demonstrations]) -> Demonstrations:
    """Demonstrations one after the other."""
    passed, *columns = zip(*parts, strict=True)
    return Demonstrations(sum(passed), *map(np.concatenate, columns))


def collect(trial: TrialConfig) -> tuple[Demonstrations, Demonstrations]:
    """Training and holdout rows of a trial: played here, or by Ray tasks of one CPU each if it has env runners.

    The chunks of episodes and their order do not depend on the number of tasks.

    Raises:
        UserError: see `demonstrate`; or there is no decision that a learner could make.
    """
    settings = _settings(trial)
    numbers = list(range(settings.episodes + settings.holdout_episodes))
    bounds = (numbers[: settings.episodes], numbers[settings.episodes :])
    pieces = [half[i : i + EPISODES_AT_ONCE] for half in bounds for i in range(0, len(half), EPISODES_AT_ONCE)]
    if trial.resources.env_runners == 0:
        played = [demonstrate(trial, piece) for piece in pieces]
    else:
        import ray

        task = ray.remote(num_cpus=1)(demonstrate)  # in the placement group of the training, as its env runners would
        played = ray.get([task.remote(trial, piece) for piece in pieces])
    first_held_out = -(-settings.episodes // EPISODES_AT_ONCE)
    found = joined(played[:first_held_out]), joined(played[first_held_out:])
    for part, name in zip(found, ("episodes", "holdout_episodes"), strict=True):
        if len(part.chosen) == 0:
            raise UserError(
                f"algorithm.{name}: in none of {part.passed} decisions does {settings.expert} name a server that may "
                "be chosen; give another expert or another env.episode.mask"
            )
    return found
