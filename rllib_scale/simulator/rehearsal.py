"""Everything that may happen to a live cluster or a router, once, before its clock starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.observation.policy import Policy
from rllib_scale.simulator.event_engine import EventEngine
from rllib_scale.simulator.outside_state import Attempt
from rllib_scale.workloads.model import TASK_DEMAND

CALL = np.array([(1.0, 0.0, 0.1, 0.0, 1, 0)], dtype=TASK_DEMAND)
"""A task that fits any server."""
DELAYED = np.array([(1.0, 0.0, 0.1, 0.5, 1, 0)], dtype=TASK_DEMAND)
"""The same, with a release delay."""
WORKFLOWS = 8


def rehearse(policy: Policy, env: EnvConfig) -> None:
    """Let a policy decide in a throw-away engine that is told everything: real tasks would wait for what is compiled.

    What is only loaded, from the cache of machine code or as a module, is loaded too.

    Args:
        policy: has to be `reset` afterwards.
        env: the problem as the policy plays it.
    """
    engine = EventEngine(env, keeps_ended=False)
    engine.begin(True, _all_events(engine))
    while not engine.done[0]:
        engine.step([0])
    with suppress(Exception):  # of a policy of the user's: it comes again, and is told, when that really decides
        policy.reset([(0, 0)])
        engine = EventEngine(env, keeps_ended=False)
        engine.play(policy, _all_events(engine))


def _all_events(engine: EventEngine) -> Callable[[], bool]:
    """See `EventEngine.begin`."""
    events = _tell_all(engine)
    return lambda: next(events, False)


def _tell_all(engine: EventEngine) -> Iterator[bool]:
    """Tell an engine of every kind of event; yields where something is to be decided."""
    for _ in range(WORKFLOWS):
        _arrive(engine, DELAYED)
    yield True
    engine.failed(_some_attempt(engine))
    yield True
    attempt = _some_attempt(engine)  # of a first task: none has ended
    engine.ended(attempt)
    engine.advance(engine.next_release_s)
    yield True
    if engine.has_ended(attempt.workflow, attempt.task):
        engine.lost(attempt.workflow, attempt.task)
    yield True
    for stopping in engine.give_up(_some_attempt(engine).workflow):
        engine.stopped(stopping)
    yield True
    server = _some_attempt(engine).server
    engine.leave(server)
    engine.hopeless([server])
    yield True
    engine.join(server)
    _arrive(engine, CALL, home=server)
    engine.resume(engine.next_number - 1, 1, server, engine.now)
    yield True
    engine.change_problem(engine.config)
    engine.snapshot()
    yield True


def _arrive(engine: EventEngine, second: np.ndarray, home: int = -1) -> None:
    """Two tasks, one behind the other."""
    engine.arrive(engine.next_number, engine.now, np.concatenate([CALL, second]), np.array([(0, 1)]), home=home)


def _some_attempt(engine: EventEngine) -> Attempt:
    """An attempt that runs, whether the policy has started one or not."""
    if not engine.running():
        engine.start_any()
    return engine.running()[0]
