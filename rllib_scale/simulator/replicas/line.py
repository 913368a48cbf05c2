"""The line of held calls, and the order in which an event offers them again.

The first is the call with the most minutes waited less `order` times the prefill that it needs [100,000 tokens] at the
replica that has most of its context. All waits grow alike, so that a key keeps its place: it is made when the call is
asked, and again when it is offered, or a candidate of `release`. A call that has been held for longer than
`head_after_s` goes to the head of the line, the first that asked first.
"""

from __future__ import annotations

from rllib_scale.compiled import rare
from rllib_scale.simulator.replicas.caches import found
from rllib_scale.simulator.replicas.service import evict_until
from rllib_scale.simulator.replicas.state import NONE


@rare
def _precedes(fleet, a, b):  # type: ignore[no-untyped-def]
    if fleet.calls[a].key != fleet.calls[b].key:
        return fleet.calls[a].key < fleet.calls[b].key
    return fleet.calls[a].rank < fleet.calls[b].rank


@rare
def _put(fleet, index, place):  # type: ignore[no-untyped-def]
    fleet.line[place] = index
    fleet.calls[index].place = place


@rare
def _rise(fleet, place):  # type: ignore[no-untyped-def]
    index = fleet.line[place]
    while place > 0 and _precedes(fleet, index, fleet.line[(place - 1) >> 1]):
        _put(fleet, fleet.line[(place - 1) >> 1], place)
        place = (place - 1) >> 1
    _put(fleet, index, place)


@rare
def _sink(fleet, place):  # type: ignore[no-untyped-def]
    index, size = fleet.line[place], fleet.now[0].in_line
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and _precedes(fleet, fleet.line[child + 1], fleet.line[child]):
            child += 1
        if not _precedes(fleet, fleet.line[child], index):
            break
        _put(fleet, fleet.line[child], place)
        place = child
    _put(fleet, index, place)


@rare
def set_key(fleet, known, index):  # type: ignore[no-untyped-def]
    """Set a call's place in the order by what it needs now, as far as the caches are `known`."""
    now, call = fleet.now[0], fleet.calls[index]
    call.key = call.asked_s / 60.0
    if now.order > 0.0:
        most = 0
        for replica in range(len(fleet.replicas)):
            if found(known, call, replica) > most:
                evict_until(known, replica, now.time)
                most = max(most, found(known, call, replica))
        call.key += now.order * (call.target - most) / 1e5


@rare
def join(fleet, index):  # type: ignore[no-untyped-def]
    """Hold a call that was just asked."""
    now, call = fleet.now[0], fleet.calls[index]
    call.previous, call.next = now.last_held, NONE
    if now.last_held != NONE:
        fleet.calls[now.last_held].next = index
    else:
        now.first_held = index
    now.last_held = index
    _put(fleet, index, now.held)
    now.held += 1
    now.in_line += 1
    _rise(fleet, now.held - 1)


@rare
def hold(fleet, known, index):  # type: ignore[no-untyped-def]
    """Hold a call, in its place by what is `known` of the caches."""
    set_key(fleet, known, index)
    if fleet.calls[index].place == NONE:
        join(fleet, index)


@rare
def leave(fleet, index):  # type: ignore[no-untyped-def]
    """A held call that was offered goes."""
    now, call = fleet.now[0], fleet.calls[index]
    if call.previous != NONE:
        fleet.calls[call.previous].next = call.next
    else:
        now.first_held = call.next
    if call.next != NONE:
        fleet.calls[call.next].previous = call.previous
    else:
        now.last_held = call.previous
    call.previous = NONE
    now.held -= 1
    _put(fleet, fleet.line[now.held], call.place)
    call.place = NONE


@rare
def first_in_line(fleet):  # type: ignore[no-untyped-def]
    """The next call to be offered, which steps aside for the others until this event has offered all that it offers."""
    now = fleet.now[0]
    if now.cursor != NONE and now.time - fleet.calls[now.cursor].asked_s > now.head_after_s:
        index = now.cursor
        now.cursor = fleet.calls[index].next
    else:
        index = fleet.line[0]
    now.in_line -= 1
    place, other = fleet.calls[index].place, fleet.line[now.in_line]
    _put(fleet, index, now.in_line)
    if other != index:
        _put(fleet, other, place)
        _rise(fleet, place)
        _sink(fleet, fleet.calls[other].place)
    return index


@rare
def step_back(fleet):  # type: ignore[no-untyped-def]
    """The calls that were offered at this event, and are still held, line up again."""
    now = fleet.now[0]
    now.offers = NONE
    while now.in_line < now.held:
        now.in_line += 1
        _rise(fleet, now.in_line - 1)
