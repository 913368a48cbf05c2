"""What counts at a replica, and a gate that holds calls back.

An agent is away, running at a replica (a call sent and unanswered) or idle there (since its last answer, for
`active_for_s`). Running and idle agents count where they are, in unique tokens: a shared prefix once. After every send
and every end there, while the sum exceeds `gate` of the memory, the agent that has been idle longest becomes away;
running ones are never paused. A call whose agent is still active at a replica passes there; at any other it needs room.
The end of a session is no event, unless `ends_told`. An idle agent has its last prompt and answer, or where the lengths
of answers are not told, the prompt.

A send makes room where agents become away, and where its own agent counted for more: it was elsewhere, or its context
was longer.

The gate of `release` follows the state: a weighted sum of GATE_TERMS is added to the room that it sees, and the
score of `lmetric` is multiplied by exp of one of PLACE_TERMS. Both count in proportion to how far the tokens of active
agents, as a share of what the gate allows on all replicas, are from FADES[0] to FADES[1]: below the first not at all.
"""

from __future__ import annotations

import math

from rllib_scale.compiled import rare
from rllib_scale.simulator.replicas.caches import found
from rllib_scale.simulator.replicas.service import evict_until, memory_now
from rllib_scale.simulator.replicas.state import NONE

PLACE_TERMS = ("new", "new_held", "calls", "backlog", "pinned", "step", "active")
"""Of a call at a replica: ln(1 + seconds of its prefill), the same times `held`, ln(1 + calls there), ln(1 + seconds of
prefill that wait there), share of the memory that running calls take, a decode step [0.1 s], 1 where its agent is
active."""
GATE_TERMS = (*PLACE_TERMS, "one", "held", "waited", "working_set", "prompt")
"""And 1, ln(1 + held calls per replica), ln(1 + seconds since the call was asked), tokens of active agents over the
memory of all replicas less 1, 10 times the prompt over the memory of the replica."""
FADES = (0.9, 1.0)
"""Below the cliff weights that were searched past it would hold calls for which there is room."""
_TERMS, _PLACE = len(PLACE_TERMS), len(GATE_TERMS)


@rare
def fits(fleet, index, replica):  # type: ignore[no-untyped-def]
    """Whether a call fits into the memory of a replica."""
    return fleet.calls[index].prompt + fleet.calls[index].output <= fleet.replicas[replica].kv_tokens


@rare
def has_nothing_to_do(here):  # type: ignore[no-untyped-def]
    """Whether no call runs or waits at a replica."""
    return here.calls + here.waiting == 0


@rare
def active_at(fleet, call):  # type: ignore[no-untyped-def]
    """The replica at which a call's agent counts, or NONE: it is away."""
    row = fleet.agents[call.session, call.agent].active
    return fleet.active[row].replica if row != NONE else NONE


@rare
def _count(fleet, row, change):  # type: ignore[no-untyped-def]
    """Count an agent at its replica (1), or no longer (-1): of its prefixes those that no other counts."""
    of = fleet.active[row]
    tokens, prefix, end = of.tokens - of.prefix_tokens, of.prefix, of.prefix_tokens
    while prefix != NONE:
        shared = fleet.prefixes[of.replica, prefix]
        shared.active += change
        if shared.active > (1 if change > 0 else 0):
            break
        tokens += end - fleet.tree[prefix].before
        prefix, end = fleet.tree[prefix].above, fleet.tree[prefix].before
    fleet.replicas[of.replica].active += change * tokens
    fleet.now[0].active_tokens += change * tokens


@rare
def added_by(fleet, call, replica):  # type: ignore[no-untyped-def]
    """Unique tokens of a call's prompt beside those of the agents that count at a replica."""
    prefix, end = call.prefix, call.prefix_tokens
    while prefix != NONE and fleet.prefixes[replica, prefix].active == 0:
        end, prefix = fleet.tree[prefix].before, fleet.tree[prefix].above
    return call.prompt - end


@rare
def _unlink(fleet, row):  # type: ignore[no-untyped-def]
    """Take an idle agent out of the order of its replica."""
    of = fleet.active[row]
    here = fleet.replicas[of.replica]
    if of.older != NONE:
        fleet.active[of.older].newer = of.newer
    else:
        here.first_idle = of.newer
    if of.newer != NONE:
        fleet.active[of.newer].older = of.older
    else:
        here.last_idle = of.older


@rare
def become_away(fleet, row):  # type: ignore[no-untyped-def]
    """An idle agent counts no longer."""
    now, of = fleet.now[0], fleet.active[row]
    _count(fleet, row, -1)
    _unlink(fleet, row)
    if of.session != NONE:
        fleet.agents[of.session, of.agent].active = NONE
    of.until_s = math.inf
    of.next, now.free_active = now.free_active, row
    now.active_left += 1


@rare
def _pause(fleet, replica):  # type: ignore[no-untyped-def]
    """While more counts at a replica than the gate allows, the agent that has been idle longest becomes away."""
    here, gate = fleet.replicas[replica], fleet.now[0].gate
    while gate > 0.0 and here.active > gate * here.kv_tokens and here.first_idle != NONE:
        become_away(fleet, here.first_idle)
        fleet.now[0].made_room = 1


@rare
def send_agent(fleet, call, replica):  # type: ignore[no-untyped-def]
    """A call is sent: its agent runs at the replica, and counts there alone."""
    now, agent = fleet.now[0], fleet.agents[call.session, call.agent]
    row, former, counted = agent.active, replica, 0
    if row == NONE:
        row = now.free_active
        of = fleet.active[row]
        now.free_active = of.next
        now.active_left -= 1
        of.session, of.agent, of.calls, agent.active = call.session, call.agent, 0, row
    else:
        of = fleet.active[row]
        former, counted = of.replica, fleet.replicas[of.replica].active
        _count(fleet, row, -1)
        if of.calls == 0:
            _unlink(fleet, row)
    of.replica, of.tokens, of.prefix, of.prefix_tokens = replica, call.prompt, call.prefix, call.prefix_tokens
    of.calls, of.until_s = of.calls + 1, math.inf
    _count(fleet, row, 1)
    if now.gate > 0.0 and fleet.replicas[former].active < counted:
        now.made_room = 1
    _pause(fleet, replica)


@rare
def answer_agent(fleet, call, until_s):  # type: ignore[no-untyped-def]
    """A call is answered; returns the row of its agent."""
    row = fleet.agents[call.session, call.agent].active
    of, here = fleet.active[row], fleet.replicas[call.replica]
    _count(fleet, row, -1)
    of.replica, of.tokens = call.replica, call.prompt + call.output * fleet.now[0].answers_told
    of.prefix, of.prefix_tokens, of.calls = call.prefix, call.prefix_tokens, of.calls - 1
    _count(fleet, row, 1)
    if of.calls == 0:
        of.until_s, of.older, of.newer = until_s, here.last_idle, NONE
        if here.last_idle != NONE:
            fleet.active[here.last_idle].newer = row
        else:
            here.first_idle = row
        here.last_idle = row
        if fleet.now[0].active_for_s <= 0.0:
            become_away(fleet, row)
    _pause(fleet, call.replica)
    return row


@rare
def end_session(fleet, session):  # type: ignore[no-untyped-def]
    """A session has ended, which is hidden unless ends are told; then its agents count no longer."""
    for agent in range(fleet.agents.shape[1]):
        row = fleet.agents[session, agent].active
        if row != NONE and fleet.now[0].ends_told:
            become_away(fleet, row)
        elif row != NONE:
            fleet.active[row].session = fleet.agents[session, agent].active = NONE


@rare
def room_for(fleet, call, here, replica, gate):  # type: ignore[no-untyped-def]
    """Share of a replica's memory that a gate leaves beside a call; 1 where its agent is active. Below 0: closed."""
    if active_at(fleet, call) == replica:
        return 1.0
    return (gate * here.kv_tokens - (here.active + added_by(fleet, call, replica))) / here.kv_tokens


@rare
def weigh_replicas(fleet, known, weights):  # type: ignore[no-untyped-def]
    """Let replicas have the parts of the sums of GATE_TERMS and PLACE_TERMS that are the same for all calls.

    `more` and `lean`, and what is added for each unit of the term `new`. `open_to` needs them where there are weights,
    and caches as they are now.
    """
    if len(weights) == 0:
        return
    now, more = fleet.now[0], weights[_TERMS:]
    now.learned = share = 1.0
    if now.gate > 0.0:
        filled = now.active_tokens / (now.gate * now.memory)
        now.learned = share = min(1.0, max(0.0, (filled - FADES[0]) / (FADES[1] - FADES[0])))
    held = math.log1p(now.held / len(fleet.replicas))
    shared = more[0] + more[1] * held + more[3] * (now.active_tokens / now.memory - 1.0)
    for replica in range(len(fleet.replicas)):
        here, seen = fleet.replicas[replica], known.replicas[replica]
        evict_until(known, replica, now.time)
        terms = (
            math.log1p(here.calls + here.waiting),
            math.log1p(here.prefill_s * seen.backlog),
            memory_now(seen, now.time),
            here.step_s + here.call_s * seen.decoding + here.context_s * seen.context,
        )
        here.more = share * (shared + _weighted(terms, weights))
        here.lean = share * _weighted(terms, weights[_PLACE:])
        here.more_per_new = share * (weights[0] + weights[1] * held)
        here.lean_per_new = share * (weights[_PLACE] + weights[_PLACE + 1] * held)


@rare
def open_to(fleet, known, index, replica, weights):  # type: ignore[no-untyped-def]
    """Whether a call fits a replica, and the gate lets it through.

    Args:
        fleet: the fleet.
        known: what is known of the caches, and of what runs.
        index: row of the call.
        replica: row of the replica.
        weights: of the terms, or none; see `weigh_replicas`.
    """
    if not fits(fleet, index, replica):
        return False
    call, here = fleet.calls[index], fleet.replicas[replica]
    now = fleet.now[0]
    if now.gate <= 0.0:
        return True
    if here.reserved and now.held > 0 and index != now.overdue and active_at(fleet, call) != replica:
        return False
    room = room_for(fleet, call, here, replica, now.gate)
    if len(weights) > 0 and index != now.overdue:
        more = weights[_TERMS:]
        new = _prefill(here, call.target, found(known, call, replica))
        active = 1.0 if active_at(fleet, call) == replica else 0.0
        here.place = here.lean + here.lean_per_new * new + now.learned * weights[_PLACE + 6] * active
        own = weights[6] * active + more[2] * math.log1p(now.time - call.asked_s)
        own += more[4] * 10.0 * call.prompt / here.kv_tokens
        room += here.more + here.more_per_new * new + now.learned * own
    return room >= 0.0


@rare
def room_at(fleet, replica, weights):  # type: ignore[no-untyped-def]
    """The part of a replica's room that is the same for all calls whose agents are not active there.

    Infinite without a gate, and -inf where the replica is reserved.
    """
    here, now = fleet.replicas[replica], fleet.now[0]
    if now.gate <= 0.0:
        return math.inf
    if here.reserved:
        return -math.inf
    return now.gate - here.active / here.kv_tokens + (here.more if len(weights) > 0 else 0.0)


@rare
def call_room(fleet, call, here, weights):  # type: ignore[no-untyped-def]
    """Upper bound of what a call adds to `room_at` of replicas like `here`, whatever their caches have of it."""
    now, room = fleet.now[0], 1e-9 - (call.prompt - call.prefix_tokens) / here.kv_tokens
    if len(weights) > 0:
        own = weights[_TERMS + 2] * math.log1p(now.time - call.asked_s)
        own += weights[_TERMS + 4] * 10.0 * call.prompt / here.kv_tokens
        room += max(0.0, here.more_per_new * _prefill(here, call.target, 0)) + now.learned * own
    return room


@rare
def _prefill(here, tokens, hit):  # type: ignore[no-untyped-def]
    """ln(1 + seconds) of the prefill of `tokens`, of which a replica has `hit`."""
    left = tokens - hit
    return math.log1p(here.prefill_s * left + here.attention_s * left * (hit + left / 2))


@rare
def _weighted(terms, weights):  # type: ignore[no-untyped-def]
    """The sum of those that are the same for all calls, by weights."""
    calls, backlog, memory, step_s = terms
    return weights[2] * calls + weights[3] * backlog + weights[4] * memory + weights[5] * 10.0 * step_s
