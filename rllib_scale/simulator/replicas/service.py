"""A replica: continuous batching step by step, and in jumps that are exact.

At a boundary between steps, in this order:

1. Each call that decodes needs one token of memory. While memory is short, the youngest running call is preempted: what
   it has computed is kept like a context, and it waits before all others.
2. Decoding calls take one token each of the step's budget; prefills that began go on with what is left, in the order of
   admission.
3. Waiting calls are admitted in their order while the limit of calls, the budget and the memory allow: a call needs
   memory for all tokens that precede its next answer token. It computes those that no cache has.

At the end of the step a call whose prefill is complete has its first token, and each decoding call one more. A call
that has all its tokens leaves; its context is kept.

Between two events the batch is constant, and each step takes longer than the one before by the same time: n steps take
n s + d n (n - 1) / 2, where s is the time of the first one.
"""

from __future__ import annotations

import math

from rllib_scale.compiled import rare
from rllib_scale.simulator.replicas.caches import (
    drop,
    find,
    found,
    keep,
    make_room,
    pin,
    protected,
    unpinned,
)
from rllib_scale.simulator.replicas.state import IDLE, NONE, READY, RUNNING

_NEVER = 2**62


@rare
def enqueue(fleet, replica, row, time):  # type: ignore[no-untyped-def]
    """Let a call wait at a replica; planned steps end where it may join."""
    here, call = fleet.replicas[replica], fleet.calls[row]
    was_empty = here.waiting == 0
    call.replica, call.next = replica, NONE
    call.estimate = call.target - found(fleet, call, replica)
    here.backlog += call.estimate
    call.in_flight = call.estimate
    here.in_flight += call.in_flight
    if was_empty:
        here.first_waiting = row
    else:
        fleet.calls[here.last_waiting].next = row
    here.last_waiting = row
    here.waiting += 1
    if here.phase == IDLE:
        here.phase, here.clock = READY, time
    elif here.phase == RUNNING and was_empty and here.chunk == 0 and here.calls < here.max_calls:
        here.planned = max(1, _steps_before(here, time))
    return ending(here)


@rare
def _steps_before(here, time):  # type: ignore[no-untyped-def]
    """Steps that begin before a time, of those planned."""
    left = time - here.clock
    if left <= 0:
        return 0
    s, d = here.first_s, here.growth_s
    b = s - d / 2
    steps = math.ceil((math.sqrt(b * b + 2 * d * left) - b) / d) if d > 0 else math.ceil(left / s)
    steps = min(max(steps, 1), here.planned)
    # Rounding may be off by one step.
    while steps < here.planned and here.clock + duration(here, steps) < time:
        steps += 1
    while steps > 1 and here.clock + duration(here, steps - 1) >= time:
        steps -= 1
    return steps


@rare
def duration(here, steps):  # type: ignore[no-untyped-def]
    """Time of the first steps of those planned [s]."""
    return steps * here.first_s + here.growth_s * (steps * (steps - 1) / 2)


@rare
def evict_until(fleet, replica, time):  # type: ignore[no-untyped-def]
    """Evict what planned steps that have ended at a time needed, as it is evicted when all of them have."""
    here = fleet.replicas[replica]
    if here.phase != RUNNING or here.decoding == 0:
        return
    most = min(here.planned, int((time - here.clock) / here.first_s + 1e-6))  # no step is shorter than the first
    if here.used + most * here.decoding > here.kv_tokens:
        make_room(fleet, here, max(0, _steps_before(here, time) - 1) * here.decoding)


@rare
def memory_now(here, time):  # type: ignore[no-untyped-def]
    """Share of the memory that running calls take, between boundaries by the time that has passed."""
    pinned = here.pinned
    if here.phase == RUNNING and here.decoding > 0 and here.planned > 1:
        whole = duration(here, here.planned)
        pinned += int(here.planned * here.decoding * min(1.0, (time - here.clock) / whole))
    return pinned / here.kv_tokens


@rare
def usage(here, time):  # type: ignore[no-untyped-def]
    """Share of the memory that running calls take, after the last step that ended before a time."""
    ended = _steps_before(here, time) - 1 if here.phase == RUNNING and here.decoding > 0 else 0
    return (here.pinned + max(0, ended) * here.decoding) / here.kv_tokens


@rare
def ending(here):  # type: ignore[no-untyped-def]
    """Time of a replica's next event [s]."""
    if here.phase == IDLE:
        return math.inf
    return here.clock if here.phase == READY else here.clock + duration(here, here.planned)


@rare
def _preempt(fleet, replica):  # type: ignore[no-untyped-def]
    here = fleet.replicas[replica]
    here.calls -= 1
    row = fleet.batch[replica, here.calls]
    call = fleet.calls[row]
    reserved = call.target
    if call.started != NONE:
        steps = here.decoded - call.started
        call.generated += steps
        call.computed += steps
        reserved = call.computed
        here.decoding -= 1
        here.context -= call.computed
        call.started = NONE
        call.target = call.prompt + call.generated
    here.backlog -= reserved - call.computed
    own = reserved - call.prefix_tokens
    here.pinned -= own
    here.used -= own - max(0, call.computed - call.prefix_tokens)
    call.reusable = max(call.reusable, call.computed)
    keep(fleet, call, replica, call.computed, here.clock)
    call.preemptions += 1
    here.preempted += 1
    call.estimate = call.target - found(fleet, call, replica)
    here.backlog += call.estimate
    call.next = here.first_waiting
    here.first_waiting = row
    if here.waiting == 0:
        here.last_waiting = row
    here.waiting += 1


@rare
def _admitted(fleet, replica, row):  # type: ignore[no-untyped-def]
    """Admit a waiting call if memory allows. Else, when memory that is kept for a time allows it, or inf."""
    here, call = fleet.replicas[replica], fleet.calls[row]
    own = call.target - call.prefix_tokens
    needed = here.pinned + here.decoding + own + unpinned(fleet, call, replica)
    if needed > here.kv_tokens:
        return False, math.inf
    if here.keep_s > 0 and here.calls > 0:
        tokens, free_s = protected(fleet, here, call, replica)
        if needed + tokens > here.kv_tokens:
            return False, free_s
    hit = found(fleet, call, replica)
    pin(fleet, call, replica)
    kept = find(fleet, call.session, call.agent, replica)
    if kept != NONE:
        here.used -= fleet.kept[kept].tokens
        drop(fleet, kept)
    make_room(fleet, here, own + here.decoding)
    here.used += own
    here.pinned += own
    here.backlog += call.target - hit - call.estimate
    call.computed = hit
    if call.admitted_s < 0:
        call.admitted_s, call.hit = here.clock, hit
    fleet.batch[replica, here.calls] = row
    here.calls += 1
    here.first_waiting = call.next
    here.waiting -= 1
    return True, math.inf


@rare
def plan(fleet, replica):  # type: ignore[no-untyped-def]
    """At a boundary: preempt, admit, and plan as many equal steps as come before the next event."""
    here = fleet.replicas[replica]
    while here.pinned + here.decoding > here.kv_tokens:
        _preempt(fleet, replica)
    budget = here.token_budget - here.decoding
    prefilling, tokens, attention, steps, chunk = 0, 0, 0.0, _NEVER, 0
    blocked, free_s, at = False, math.inf, 0
    prefills = here.calls - here.decoding
    while budget > 0:
        if at < here.calls and prefills > 0:
            row = fleet.batch[replica, at]
            at += 1
            if fleet.calls[row].started != NONE:
                continue
            prefills -= 1
        elif here.waiting > 0 and here.calls < here.max_calls:
            row = here.first_waiting
            admitted, free_s = _admitted(fleet, replica, row)
            if not admitted:
                blocked = True
                break
            at = here.calls
        else:
            break
        call = fleet.calls[row]
        left = call.target - call.computed
        chunk = min(left, budget)
        call.chunk = chunk
        budget -= chunk
        prefilling += 1
        tokens += chunk
        attention += chunk * (call.computed + (chunk - 1) / 2)
        steps = (left - 1) // chunk  # full chunks before the last one
    if here.calls == 0:
        here.phase = IDLE
        return
    # Prefills that the budget does not reach keep no chunk.
    while prefills > 0 and at < here.calls:
        call = fleet.calls[fleet.batch[replica, at]]
        if call.started == NONE:
            call.chunk = 0
        at += 1
    here.first_s = (
        here.step_s
        + here.call_s * (here.decoding + prefilling)
        + here.context_s * here.context
        + here.prefill_s * tokens
        + here.attention_s * attention
    )
    if here.overlap > 0.0:
        read_s = here.step_s + here.context_s * here.context
        here.first_s -= here.overlap * min(read_s, here.prefill_s * tokens + here.attention_s * attention)
    here.growth_s = here.context_s * here.decoding
    here.chunk = chunk
    if prefilling > 1 or (prefilling == 1 and (steps < 2 or budget > 0 or here.overlap > 0.0)):
        here.planned = 1
    else:
        if prefilling == 1:
            here.growth_s += here.attention_s * float(chunk) * chunk
        if here.decoding > 0:
            steps = min(steps, here.next_end - here.decoded, (here.kv_tokens - here.pinned) // here.decoding)
        here.planned = steps
        if blocked and free_s < math.inf:
            here.planned = max(1, _steps_before(here, free_s))
    here.phase = RUNNING


@rare
def carry_out(fleet, replica, ended):  # type: ignore[no-untyped-def]
    """Carry out the planned steps. Writes the calls that end to `ended`, and returns how many."""
    here = fleet.replicas[replica]
    steps, is_prefill = here.planned, here.chunk > 0
    took = duration(here, steps)
    here.clock += took
    here.busy_s += took
    here.phase = READY
    grown = steps * here.decoding
    make_room(fleet, here, grown)
    here.used += grown
    here.pinned += grown
    here.context += grown
    here.decoded += steps
    count = 0
    if not is_prefill and (here.decoding == 0 or here.decoded < here.next_end):
        return count
    next_end, kept = _NEVER, 0
    for at in range(here.calls):
        row = fleet.batch[replica, at]
        call = fleet.calls[row]
        if call.started == NONE:
            new = steps * call.chunk
            call.computed += new
            call.prefilled += new
            here.backlog -= new
            if call.computed == call.target:
                call.generated += 1
                if call.first_s < 0:
                    call.first_s = here.clock
                    here.in_flight -= call.in_flight
                call.started, call.end = here.decoded, here.decoded + call.output - call.generated
                here.decoding += 1
                here.context += call.computed
        if call.started != NONE and call.end == here.decoded:
            here.decoding -= 1
            tokens = call.computed + here.decoded - call.started
            here.context -= tokens
            here.pinned -= tokens - call.prefix_tokens
            keep(fleet, call, replica, tokens, here.clock)
            ended[count] = row
            count += 1
            continue
        if call.started != NONE:
            next_end = min(next_end, call.end)
        fleet.batch[replica, kept] = row
        kept += 1
    here.calls = kept
    here.next_end = next_end
    return count
