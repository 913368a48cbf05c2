"""Scripts: recorded sessions that live sessions of a fleet repeat, and logs of single requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rllib_scale.config.replicas import ServiceConfig
from rllib_scale.errors import UserError
from rllib_scale.simulator.replicas.state import NONE, TASK
from rllib_scale.workloads.formats.base import Progress
from rllib_scale.workloads.formats.kv_cache_tester import recorded
from rllib_scale.workloads.formats.sessions import Agent, Call
from rllib_scale.workloads.traces import trained_on

_ESTIMATES = 1
"""Seed of the estimates of answers' lengths: those of a recorded call are the same in all episodes."""
MOST_TOKENS = 150_000
"""Context at which a drawn session ends."""


@dataclass(frozen=True)
class Scripts:
    """Scripts as arrays.

    Attributes:
        tasks: (T,) TASK, script by script, in the order of their recorded starts.
        first_task: (scripts + 1,) where each script begins.
        successors: calls that need a call, numbered within their script.
    """

    tasks: NDArray[Any]
    first_task: NDArray[np.int64]
    successors: NDArray[np.int64]

    def __len__(self) -> int:
        """How many."""
        return len(self.first_task) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Calls of each script."""
        return np.diff(self.first_task)

    @property
    def arrays(self) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
        """As `new_fleet` takes them."""
        return self.tasks, self.first_task, self.successors

    def part(self, chosen: Iterable[int]) -> Scripts:
        """Some of the scripts."""
        return joined([self._one(number) for number in chosen])

    def _one(self, number: int) -> tuple[NDArray[Any], list[list[int]]]:
        tasks = self.tasks[self.first_task[number] : self.first_task[number + 1]].copy()
        return tasks, [list(self.successors[task["first_next"] : task["end_next"]]) for task in tasks]


def joined(scripts: Sequence[tuple[NDArray[Any], list[list[int]]]]) -> Scripts:
    """Scripts from their tasks and the successors of each task."""
    lists = [following for _, lists in scripts for following in lists]
    ends = np.cumsum([len(following) for following in lists])
    tasks = np.concatenate([tasks for tasks, _ in scripts])
    tasks["first_next"], tasks["end_next"] = np.concatenate([[0], ends[:-1]]), ends
    successors = np.array([number for following in lists for number in following], np.int64)
    return Scripts(tasks, np.concatenate([[0], np.cumsum([len(tasks) for tasks, _ in scripts])]), successors)


def requests(prompt: ArrayLike, output: ArrayLike, prefix_tokens: int = 0) -> Scripts:
    """Single requests, each a script, which share a prefix."""
    tasks = np.zeros(np.shape(prompt), TASK)
    tasks["prompt"], tasks["output"] = prompt, output
    tasks["prefix"] = 0 if prefix_tokens else NONE
    tasks["prefix_tokens"] = prefix_tokens
    return joined([(tasks[i : i + 1], [[]]) for i in range(len(tasks))])


def drawn_scripts(count: int = 200, seed: int = 0) -> Scripts:
    """Sessions like those of coding agents, for trials without a recording.

    Numbers of calls, gaps and tokens have about the medians of public sessions [kv-cache-tester]; their shapes are
    assumed.
    """
    rng, scripts = np.random.default_rng(seed), list[tuple[NDArray[Any], list[list[int]]]]()
    for _ in range(count):
        calls = 1 + int(rng.geometric(1 / 45))
        tasks = np.zeros(calls, TASK)
        output, new = np.exp(rng.normal(5.3, 1.0, calls)), np.exp(rng.normal(7.0, 1.2, calls))
        starts_turn = rng.random(calls) < 1 / 6
        tasks["output"] = 1 + np.minimum(output, 8000)
        tasks["prompt"] = 17_000 + np.cumsum(np.minimum(new, 20_000)) + np.cumsum(tasks["output"]) - tasks["output"]
        tasks["reusable"][1:] = tasks["prompt"][:-1] + tasks["output"][:-1]
        tasks["prefix"], tasks["prefix_tokens"] = 0, 15_000
        tasks["turn"], tasks["needs"] = np.cumsum(starts_turn), np.arange(calls) > 0
        tasks["gap_s"] = np.where(starts_turn, 60.0, np.exp(rng.normal(2.2, 1.0, calls)))
        tasks["release_s"] = np.where(starts_turn, np.cumsum(tasks["gap_s"] + 10.0), -1.0)
        tasks["gap_s"][0] = tasks["release_s"][0] = 0.0
        tasks = tasks[tasks["prompt"] + tasks["output"] <= MOST_TOKENS]
        scripts.append((tasks, [[number + 1] for number in range(len(tasks) - 1)] + [[]]))
    return joined(scripts)


def scripts_of(service: ServiceConfig) -> Scripts:
    """The scripts of a problem's sessions: of its trace the part that is asked for, or drawn ones.

    Raises:
        UserError: as `read_scripts`; or no session is in that part.
    """
    decide = ("trace", "split", "part", "tool_gap_cap_s", "think_gap_cap_s")  # at any load the same are read once
    scripts = _scripts_of(ServiceConfig(**{name: getattr(service, name) for name in decide}))
    if service.lengths == "hidden":
        return scripts
    tasks, error = scripts.tasks.copy(), service.length_error if service.lengths == "estimated" else 0.0
    draws = np.random.default_rng(_ESTIMATES).standard_normal(len(tasks))
    tasks["expected"] = np.maximum(1, np.rint(tasks["output"] * np.exp(error * draws)))
    return replace(scripts, tasks=tasks)


@lru_cache(maxsize=8)
def _scripts_of(service: ServiceConfig) -> Scripts:
    if (path := service.path) is None:
        return drawn_scripts()
    scripts = read_scripts([path], service)
    if service.part in (None, "all"):
        return scripts
    chosen = np.flatnonzero(trained_on(np.arange(len(scripts)), service.split) == (service.part == "train"))
    if not len(chosen):
        raise UserError(f"service.part {service.part}: no session; change service.split.train_share or split.seed")
    return scripts.part(chosen)


def read_scripts(
    sources: Sequence[Path], service: ServiceConfig | None = None, progress: Progress | None = None
) -> Scripts:
    """Scripts of sessions as kv-cache-tester publishes them.

    An agent's calls share its context; those with the same tools and system prompt share that prefix. The last of each
    agent's tokens that an earlier call computed are reusable.

    Raises:
        UserError: a source cannot be read, a record is bad, or there is none.
    """
    scripts: list[tuple[NDArray[Any], list[list[int]]]] = []
    prefixes: dict[Any, int] = {}
    for calls, agents in recorded(sources, progress or Progress()):
        scripts.append(_script(calls, agents, prefixes, service or ServiceConfig()))
    if not scripts:
        raise UserError(f"{', '.join(map(str, sources))}: no session with calls")
    return joined(scripts)


def _script(
    calls: list[Call], agents: list[Agent], prefixes: dict[Any, int], service: ServiceConfig
) -> tuple[NDArray[Any], list[list[int]]]:
    agent_of = [number for number, agent in enumerate(agents) for _ in agent.calls]
    order = sorted(range(len(calls)), key=lambda task: (calls[task].start_s, task))
    number = {task: position for position, task in enumerate(order)}
    tasks, following = np.zeros(len(calls), TASK), [list[int]() for _ in calls]
    start_s, end_s = dict[int, float](), dict[int, float]()  # with gaps cut to their caps
    for task, row in zip(order, tasks, strict=True):
        call, agent = calls[task], agents[agent_of[task]]
        recorded_s = max((calls[need].end_s for need in call.needs), default=calls[order[0]].start_s)
        thought = bool(call.needs) and call.turn > max(calls[need].turn for need in call.needs)
        gap_s = min(call.start_s - recorded_s, service.think_gap_cap_s if thought else service.tool_gap_cap_s)
        start_s[task] = max((end_s[need] for need in call.needs), default=0.0) + gap_s
        end_s[task] = start_s[task] + call.end_s - call.start_s
        row["prompt"], row["output"] = max(1, call.input_tokens), max(1, call.output_tokens)
        row["reusable"] = max(0, call.input_tokens - call.new_tokens)
        row["agent"], row["turn"], row["needs"], row["gap_s"] = agent_of[task], call.turn, len(call.needs), gap_s
        row["release_s"] = start_s[task] if thought or not call.needs else -1.0
        row["prefix_tokens"] = min(sum(agent.prefix), row["prompt"])
        row["prefix"] = prefixes.setdefault(agent.prefix, len(prefixes)) if row["prefix_tokens"] else NONE
        for need in call.needs:
            following[number[need]].append(number[task])
    return tasks, following
