"""What a rule knows of the caches: a fleet that it reads in place of the real one, by `observation.caches`.

exact: the real fleet. A number: caches, calls that run or wait and memory in use, read at intervals of this many
seconds. own: what a router remembers of its prompts. It takes each to stay where it was sent, the last ones used first,
as much as fits the memory; it is told of no end of a session, no eviction and no length of an answer, and sees no queue
of a replica: all calls that it has sent there run.

A router on Ray Serve has the same memory, in the fleet that its rules read (`rllib_scale.simulator.replicas.router`).
The gate counts what the router has sent, and has seen answered, whatever is known of the caches.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from rllib_scale.compiled import compiled, rare
from rllib_scale.simulator.replicas.caches import drop, find, forget_owner, found, keep, make_room, pin
from rllib_scale.simulator.replicas.handles import fleet_handles, fleet_of
from rllib_scale.simulator.replicas.service import evict_until, usage
from rllib_scale.simulator.replicas.state import DONE, IDLE, NONE, Fleet, grown

_COPIED = ("now", "replicas", "prefixes", "kept", "sessions", "agents")
EXACT, READ, OWN = range(3)


class Knowledge:
    """What a rule knows of one fleet while it plays.

    Args:
        caches: see above.
        fleet: the real one, at the start of its episode.
    """

    def __init__(self, caches: float | str, fleet: Fleet) -> None:
        self.how = {"exact": EXACT, "own": OWN}.get(str(caches), READ)
        self._every_s = math.inf if isinstance(caches, str) else caches
        self._read_s = self._every_s
        self._fleet = fleet if self.how == EXACT else _copy(fleet)

    def table(self, real: NDArray[np.int64]) -> NDArray[np.int64]:
        """For compiled code; `real`: that of the real fleet."""
        return real if self.how == EXACT else fleet_handles(self._fleet)

    def until(self, until_s: float) -> float:
        """The time to play to: when it is read next, if that is before."""
        return min(until_s, self._read_s)

    def follow(self, fleet: Fleet, state: int) -> bool:
        """Go on with the real fleet after it was played, or grew; whether it stopped only to be read."""
        if self.how == EXACT:
            return False
        is_read = state == DONE and fleet.now[0]["time"] >= self._read_s
        if is_read:
            _settle(fleet.now[0]["time"], fleet_handles(fleet), False)
            self._fleet, self._read_s = _copy(fleet), self._read_s + self._every_s
            _settle(fleet.now[0]["time"], fleet_handles(self._fleet), True)
        begun, known = len(self._fleet.agents), grown(self._fleet)
        for name in ("agents", "sessions"):
            rows, most = getattr(known, name), len(getattr(fleet, name))
            more = np.zeros((max(0, most - len(rows)), *rows.shape[1:]), rows.dtype)
            known = known._replace(**{name: np.concatenate([rows, more])})
        known.agents["kept"][begun:] = NONE
        self._fleet = known
        return is_read


def _copy(fleet: Fleet) -> Fleet:
    copy = fleet._replace(**{name: getattr(fleet, name).copy() for name in _COPIED})
    copy.agents["kept"][copy.sessions["left"] == 0] = NONE  # rows of no session
    return copy


@compiled
def _settle(time, table, is_copy):  # type: ignore[no-untyped-def]
    """Let caches be those of a time, and in a copy memory in use, too."""
    fleet = fleet_of(table)
    for replica in range(len(fleet.replicas)):
        here = fleet.replicas[replica]
        if is_copy:
            here.pinned, here.phase = round(usage(here, time) * here.kv_tokens), IDLE
        else:
            evict_until(fleet, replica, time)


@rare
def meet(known, session, number):  # type: ignore[no-untyped-def]
    """Forget whose contexts the row of a session named, if it is another session's by now."""
    if known.sessions[session].number != number:
        known.sessions[session].number = number
        for agent in range(known.agents.shape[1]):
            while known.agents[session, agent].kept != NONE:
                forget_owner(known, known.agents[session, agent].kept)


@compiled
def forget_replica(replica, table):  # type: ignore[no-untyped-def]
    """Forget all that was sent to a replica."""
    fleet = fleet_of(table)
    make_room(fleet, fleet.replicas[replica], fleet.replicas[replica].kv_tokens)


@rare
def remember(fleet, known, call, is_own):  # type: ignore[no-untyped-def]
    """A call was sent: count what it is thought to need, and remember its prompt."""
    here = known.replicas[call.replica]
    new = call.prompt - found(known, call, call.replica)
    fleet.replicas[call.replica].in_flight += new - call.in_flight
    call.in_flight = new
    if not is_own:
        return
    pin(known, call, call.replica)
    kept = find(known, call.session, call.agent, call.replica)
    if kept != NONE:
        here.used -= known.kept[kept].tokens
        drop(known, kept)
    own = call.prompt - call.prefix_tokens
    make_room(known, here, own)
    here.used += own
    keep(known, call, call.replica, call.prompt, fleet.now[0].time)


@rare
def count_calls(fleet, known):  # type: ignore[no-untyped-def]
    """Let the calls that were sent and not answered run, and memory in use be their prompts."""
    for replica in range(len(fleet.replicas)):
        here, tokens = fleet.replicas[replica], 0
        for at in range(here.calls):
            tokens += fleet.calls[fleet.batch[replica, at]].prompt
        row = here.first_waiting
        for _ in range(here.waiting):
            tokens += fleet.calls[row].prompt
            row = fleet.calls[row].next
        known.replicas[replica].calls, known.replicas[replica].pinned = here.calls + here.waiting, tokens
