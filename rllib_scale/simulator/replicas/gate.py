"""What counts at a replica, and a gate that holds calls back.

With a gate, a call is sent only where the contexts of the active sessions, its own included, stay within a share of the
memory for contexts, or where its session is active already (as ThunderAgent).

The gate of `adaptive-gate` follows the state: a weighted sum of GATE_TERMS is added to the room that it sees, and the
score of `lmetric` is multiplied by exp of one of PLACE_TERMS.
"""

from __future__ import annotations

import math

from rllib_scale.compiled import rare
from rllib_scale.simulator.replicas.caches import found
from rllib_scale.simulator.replicas.service import memory_now
from rllib_scale.simulator.replicas.state import NONE

PLACE_TERMS = ("new", "new_held", "calls", "backlog", "pinned", "step", "active")
"""Of a call at a replica: ln(1 + seconds of its prefill), the same times `held`, ln(1 + calls there), ln(1 + seconds of
prefill that wait there), share of the memory that running calls take, a decode step [0.1 s], 1 where its session is
active."""
GATE_TERMS = (*PLACE_TERMS, "one", "held", "waited", "working_set", "prompt")
"""And 1, ln(1 + held calls per replica), ln(1 + seconds since the call was asked), tokens of active sessions over the
memory of all replicas less 1, 10 times the prompt over the memory of the replica."""
_TERMS, _PLACE = len(PLACE_TERMS), len(GATE_TERMS)


@rare
def deactivate(fleet, session, agent):  # type: ignore[no-untyped-def]
    """An agent counts to no working set until its next call."""
    of = fleet.agents[session, agent]
    if of.active != NONE:
        fleet.replicas[of.active].active -= of.tokens
        fleet.now[0].active_tokens -= of.tokens
    of.active, of.tokens, of.until_s = NONE, 0, math.inf


@rare
def activate(fleet, call, replica, tokens, until_s):  # type: ignore[no-untyped-def]
    """Count an agent at a replica, with so many tokens, and nowhere else."""
    deactivate(fleet, call.session, call.agent)
    of = fleet.agents[call.session, call.agent]
    of.active, of.tokens, of.until_s = replica, tokens, until_s
    fleet.replicas[replica].active += tokens
    fleet.now[0].active_tokens += tokens


@rare
def fits(fleet, index, replica):  # type: ignore[no-untyped-def]
    """Whether a call fits into the memory of a replica."""
    return fleet.calls[index].prompt + fleet.calls[index].output <= fleet.replicas[replica].kv_tokens


@rare
def room_for(fleet, call, here, replica, gate):  # type: ignore[no-untyped-def]
    """Share of a replica's memory that a gate leaves beside a call; 1 where its session is active. Below 0: closed."""
    if fleet.agents[call.session, call.agent].active == replica:
        return 1.0
    return (gate * here.kv_tokens - (here.active + call.prompt)) / here.kv_tokens


@rare
def open_to(fleet, index, replica, gate, weights):  # type: ignore[no-untyped-def]
    """Whether a call fits a replica, and the gate lets it through; `weights` of the terms, or none."""
    if not fits(fleet, index, replica):
        return False
    call, here = fleet.calls[index], fleet.replicas[replica]
    if gate <= 0.0:
        return True
    room = room_for(fleet, call, here, replica, gate)
    if len(weights) > 0:
        now, more = fleet.now[0], weights[_TERMS:]
        terms = _terms(fleet, index, replica)
        here.place = _weighted(terms, weights[_PLACE:])
        room += _weighted(terms, weights)
        room += more[0] + more[1] * math.log1p(now.held / len(fleet.replicas))
        room += more[2] * math.log1p(now.time - call.asked_s)
        room += more[3] * (now.active_tokens / now.memory - 1.0)
        room += more[4] * 10.0 * call.prompt / here.kv_tokens
    return room >= 0.0


@rare
def _terms(fleet, index, replica):  # type: ignore[no-untyped-def]
    """PLACE_TERMS; of the second one its factor."""
    call, here, now = fleet.calls[index], fleet.replicas[replica], fleet.now[0]
    hit = found(fleet, call, replica)
    tokens = call.target - hit
    new = math.log1p(here.prefill_s * tokens + here.attention_s * tokens * (hit + tokens / 2))
    step_s = here.step_s + here.call_s * here.decoding + here.context_s * here.context
    return (
        new,
        math.log1p(now.held / len(fleet.replicas)),
        math.log1p(here.calls + here.waiting),
        math.log1p(here.prefill_s * here.backlog),
        memory_now(here, now.time),
        step_s,
        1.0 if fleet.agents[call.session, call.agent].active == replica else 0.0,
    )


@rare
def _weighted(terms, weights):  # type: ignore[no-untyped-def]
    """Their sum by weights."""
    new, held, calls, backlog, memory, step_s, active = terms
    return (
        weights[0] * new
        + weights[1] * new * held
        + weights[2] * calls
        + weights[3] * backlog
        + weights[4] * memory
        + weights[5] * 10.0 * step_s
        + weights[6] * active
    )
