"""The entry point of `ReplicaEngine`: fleets are answered and run to their next decisions in one compiled call."""

from __future__ import annotations

import numpy as np

from rllib_scale.compiled import compiled
from rllib_scale.simulator.replicas.features import write_features
from rllib_scale.simulator.replicas.gate import fits
from rllib_scale.simulator.replicas.handles import fleet_of
from rllib_scale.simulator.replicas.known import EXACT
from rllib_scale.simulator.replicas.loop import answer, next_offer
from rllib_scale.simulator.replicas.state import NONE

UNANSWERED = -1


@compiled
def step_batch(todo, actions, until_s, offered, ended, observation, fit, table):  # type: ignore[no-untyped-def]
    """Answer in each fleet of `todo`, and let it run to its next decision.

    Args:
        todo: (B,) bool; False once a fleet has come to its next decision.
        actions: (B,) the replica for the call that is offered; N holds it; UNANSWERED once it was carried out.
        until_s: (B,) time at which a fleet stops.
        offered: (B,) rows of the calls that are offered; DONE or FULL where a fleet stopped.
        ended: room for the calls of a replica.
        observation: (B, W) float32.
        fit: (B, 1, N + 1) uint8.
        table: (B, A, 4) as by `fleet_handles`.

    Returns:
        A fleet that has come to its time, or whose tables have to grow; -1: none has.
    """
    for b in range(len(todo)):
        if not todo[b]:
            continue
        fleet = fleet_of(table[b])
        if actions[b] != UNANSWERED:
            now, replica = fleet.now[0], actions[b]
            actions[b] = UNANSWERED
            now.decisions += 1
            if replica == len(fleet.replicas):
                replica = np.int64(NONE)
                now.passed += 1
            elif not fits(fleet, offered[b], replica):
                replica = np.int64(NONE)
                now.no_fit += 1
            answer(fleet, fleet, offered[b], replica)
        offered[b] = next_offer(fleet, fleet, EXACT, until_s[b], ended)
        if offered[b] < 0:
            return b
        todo[b] = False
        write_features(fleet, offered[b], observation[b], fit[b, 0])
    return -1
