"""What a policy observes of a fleet at a decision, in relative units.

The length of an answer is hidden: no feature knows it.
"""

from __future__ import annotations

import math

from rllib_scale.compiled import compiled
from rllib_scale.simulator.replicas.caches import found
from rllib_scale.simulator.replicas.loop import fits
from rllib_scale.simulator.replicas.rules import memory_now
from rllib_scale.simulator.replicas.state import IDLE, NONE

CALL_FEATURES = ("prompt_share", "waited", "held", "queue", "working_set")
REPLICA_FEATURES = (
    *("running", "waiting", "backlog", "pinned", "evictable", "active", "step"),
    *("hit", "new", "marginal", "home"),
)


@compiled
def observe(fleet, index, row, mask):  # type: ignore[no-untyped-def]
    """Write the features of an offered call (CALL_FEATURES), then of each replica (REPLICA_FEATURES), and the mask.

    The call: prompt over the mean memory; log(1 + seconds since it was asked); whether it is held; held calls per
    replica, log(1 + n); active tokens over all memory. A replica: calls that run and wait, log(1 + n); prefill that it
    still has to do [s], log(1 + t); shares of its memory that running calls take, that may be evicted, and of active
    sessions; time of a decode step in 0.1 s; share of the prompt that it has; prefill of the rest [s], log(1 + t); the
    delay of that for all calls that decode there [s], log(1 + t); whether the session is there.
    """
    call, now, memory = fleet.calls[index], fleet.now[0], 0
    replicas = len(fleet.replicas)
    for replica in range(replicas):
        memory += fleet.replicas[replica].kv_tokens
    row[0] = call.prompt * replicas / memory
    row[1] = math.log1p(now.time - call.asked_s)
    row[2] = 1.0 if call.previous != NONE or now.first_held == index else 0.0
    row[3] = math.log1p(now.held / replicas)
    row[4] = now.active_tokens / memory
    is_idle = False
    for replica in range(replicas):
        here, at = fleet.replicas[replica], 5 + 11 * replica
        hit = found(fleet, call, replica)
        new = call.target - hit
        new_s = here.prefill_s * new + here.attention_s * new * (hit + new / 2)
        row[at] = math.log1p(here.calls)
        row[at + 1] = math.log1p(here.waiting)
        row[at + 2] = math.log1p(here.prefill_s * here.backlog)
        row[at + 3] = memory_now(here, now.time)
        row[at + 4] = (here.used - here.pinned) / here.kv_tokens
        row[at + 5] = here.active / here.kv_tokens
        row[at + 6] = 10.0 * (here.step_s + here.call_s * here.decoding + here.context_s * here.context)
        row[at + 7] = hit / call.prompt
        row[at + 8] = math.log1p(new_s)
        row[at + 9] = math.log1p(new_s * here.decoding)
        row[at + 10] = 1.0 if fleet.agents[call.session, call.agent].home == replica else 0.0
        mask[replica] = fits(fleet, index, replica)
        is_idle |= mask[replica] and here.phase == IDLE
    mask[replicas] = not is_idle
