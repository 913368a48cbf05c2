"""Scripts: recorded sessions that live sessions of a fleet repeat, and logs of single requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rllib_scale.config.replicas import ServiceConfig
from rllib_scale.config.workload import SplitConfig
from rllib_scale.errors import UserError
from rllib_scale.simulator.replicas.prefixes import shared_prefixes, tree_of
from rllib_scale.simulator.replicas.state import NONE, TASK, TREE
from rllib_scale.workloads.formats.base import Progress
from rllib_scale.workloads.formats.calls import Block, Call
from rllib_scale.workloads.formats.registry import find_format
from rllib_scale.workloads.formats.sessions import Recorded, RecordedSession
from rllib_scale.workloads.traces import trained_on

_ESTIMATES = 1
FITTING_SHARE = 0.75
"""Of the training sessions; the others are for validation."""
"""Seed of the estimates of answers' lengths: those of a recorded call are the same in all episodes."""
MOST_TOKENS = 150_000
"""Context at which a drawn session ends."""


@dataclass(frozen=True)
class Scripts:
    """Scripts as arrays.

    Attributes:
        tree: (P,) TREE, the prefixes that calls share.
        tasks: (T,) TASK, script by script, in the order of their recorded starts.
        first_task: (scripts + 1,) where each script begins.
        successors: calls that need a call, numbered within their script.
        begun_s: (scripts,) when each began, from the first one [s]; by default all at once.
    """

    tree: NDArray[Any]
    tasks: NDArray[Any]
    first_task: NDArray[np.int64]
    successors: NDArray[np.int64]
    begun_s: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        """How many."""
        return len(self.first_task) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Calls of each script."""
        return np.diff(self.first_task)

    @property
    def arrays(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
        """As `new_fleet` takes them."""
        return self.tree, self.tasks, self.first_task, self.successors

    def part(self, chosen: Iterable[int]) -> Scripts:
        """Some of the scripts."""
        chosen = list(chosen)
        begun_s = None if self.begun_s is None else self.begun_s[chosen]
        return replace(joined([self._one(number) for number in chosen], self.tree), begun_s=begun_s)

    def _one(self, number: int) -> tuple[NDArray[Any], list[list[int]]]:
        tasks = self.tasks[self.first_task[number] : self.first_task[number + 1]].copy()
        return tasks, [list(self.successors[task["first_next"] : task["end_next"]]) for task in tasks]


def joined(scripts: Sequence[tuple[NDArray[Any], list[list[int]]]], tree: NDArray[Any] | None = None) -> Scripts:
    """Scripts from their tasks and the successors of each task; without a tree no prefix goes on from another."""
    lists = [following for _, lists in scripts for following in lists]
    ends = np.cumsum([len(following) for following in lists])
    tasks = np.concatenate([tasks for tasks, _ in scripts])
    tasks["first_next"], tasks["end_next"] = np.concatenate([[0], ends[:-1]]), ends
    successors = np.array([number for following in lists for number in following], np.int64)
    if tree is None:
        tree = np.zeros(int(tasks["prefix"].max(initial=0)) + 1, TREE)
        tree["above"] = NONE
    return Scripts(tree, tasks, np.concatenate([[0], np.cumsum([len(tasks) for tasks, _ in scripts])]), successors)


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
    scripts, _ = _read(service)
    if service.lengths == "hidden":
        return scripts
    tasks, error = scripts.tasks.copy(), service.length_error if service.lengths == "estimated" else 0.0
    draws = np.random.default_rng(_ESTIMATES).standard_normal(len(tasks))
    tasks["expected"] = np.maximum(1, np.rint(tasks["output"] * np.exp(error * draws)))
    return replace(scripts, tasks=tasks)


def counted_in(service: ServiceConfig) -> Counter[str]:
    """What was read of a problem's trace, in all of its parts, and what was left out or odd, as an import counts it.

    Raises:
        UserError: as `scripts_of`.
    """
    _, counts = _read(service)
    return counts


def _read(service: ServiceConfig) -> tuple[Scripts, Counter[str]]:
    """Scripts and counts; a trace is read once for all loads."""
    decide = ("trace", "format", "block_size", "split", "part", "tool_gap_cap_s", "think_gap_cap_s")
    return _scripts_of(ServiceConfig(**{name: getattr(service, name) for name in decide}))


@lru_cache(maxsize=8)
def _scripts_of(service: ServiceConfig) -> tuple[Scripts, Counter[str]]:
    if (path := service.path) is None:
        return drawn_scripts(), Counter()
    progress = Progress()
    scripts = read_scripts([path], service, progress)
    if service.part in (None, "all"):
        return scripts, progress.counts
    sessions = np.arange(len(scripts))
    is_chosen = trained_on(sessions, service.split) == (service.part != "test")
    if service.part in ("fitting", "validation"):
        inner = SplitConfig(train_share=FITTING_SHARE, seed=service.split.seed + 1)
        is_chosen &= trained_on(sessions, inner) == (service.part == "fitting")
    chosen = np.flatnonzero(is_chosen)
    if not len(chosen):
        raise UserError(f"service.part {service.part}: no session; change service.split.train_share or split.seed")
    return scripts.part(chosen), progress.counts


def read_scripts(
    sources: Sequence[Path], service: ServiceConfig | None = None, progress: Progress | None = None
) -> Scripts:
    """Scripts of recorded sessions, in `service.format`.

    An agent's calls share its context: tokens that its call before computed are reusable. What it shares with others,
    see `shared_prefixes`.

    Raises:
        UserError: a source cannot be read, a record is bad, or there is none.
    """
    service = service or ServiceConfig()
    chosen = find_format(service.format)
    settings = {} if service.block_size is None else {"block_size": service.block_size}
    sessions = Recorded(chosen.mapping(**settings), progress or Progress())
    assert chosen.collect is not None
    chosen.collect(sources, sessions)
    if not sessions.found:
        raise UserError(f"{', '.join(map(str, sources))}: no session with calls")
    ends = shared_prefixes(sessions.found)
    tree, numbers = tree_of(end for each in ends for end in each)
    scripts = [_script(*each, numbers, service) for each in zip(sessions.found, ends, strict=True)]
    begun_s = np.array([session.start_s for session in sessions.found])
    return replace(joined(scripts, tree), begun_s=begun_s - begun_s.min())


def _script(
    session: RecordedSession, ends: list[Block | None], prefixes: dict[Block, int], service: ServiceConfig
) -> tuple[NDArray[Any], list[list[int]]]:
    calls, agents = session.calls, session.agents
    agent_of = [number for number, agent in enumerate(agents) for _ in agent.calls]
    order = sorted(range(len(calls)), key=lambda task: (calls[task].start_s, task))
    number = {task: position for position, task in enumerate(order)}
    tasks, following = np.zeros(len(calls), TASK), [list[int]() for _ in calls]
    start_s, end_s = dict[int, float](), dict[int, float]()  # with gaps cut to their caps
    latest = dict[int, Call]()  # of each agent
    for task, row in zip(order, tasks, strict=True):
        call, agent, prefix = calls[task], agent_of[task], ends[task]
        recorded_s = max((calls[need].end_s for need in call.needs), default=calls[order[0]].start_s)
        thought = bool(call.needs) and call.turn > max(calls[need].turn for need in call.needs)
        gap_s = min(call.start_s - recorded_s, service.think_gap_cap_s if thought else service.tool_gap_cap_s)
        start_s[task] = max((end_s[need] for need in call.needs), default=0.0) + gap_s
        end_s[task] = start_s[task] + call.end_s - call.start_s
        row["prompt"], row["output"] = max(1, call.input_tokens), max(1, call.output_tokens)
        hashed, known = call.block is not None, call.known_to(latest.get(agent))
        row["reusable"] = known if hashed else max(0, call.input_tokens - call.new_tokens)
        latest[agent] = call
        row["agent"], row["turn"], row["needs"], row["gap_s"] = agent, call.turn, len(call.needs), gap_s
        row["release_s"] = start_s[task] if thought or not call.needs else -1.0
        row["prefix_tokens"] = 0 if prefix is None else min(prefix.tokens, row["prompt"])
        row["prefix"] = NONE if prefix is None else prefixes[prefix]
        for need in call.needs:
            following[number[need]].append(number[task])
    return tasks, following
