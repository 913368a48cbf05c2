"""The compiled writer of the features of a fleet, `rllib_scale.observation.replicas`."""

from __future__ import annotations

import math

from rllib_scale.compiled import rare
from rllib_scale.observation.answers import CLOSED, OPEN
from rllib_scale.observation.replicas import REPLICAS
from rllib_scale.simulator.replicas.caches import found
from rllib_scale.simulator.replicas.gate import fits, has_nothing_to_do, room_for
from rllib_scale.simulator.replicas.rules import expected_tokens
from rllib_scale.simulator.replicas.service import memory_now
from rllib_scale.simulator.replicas.state import NONE

_HEAD, _WIDTH, _HOLD = REPLICAS.head(), REPLICAS.server_dim, REPLICAS.server_column("hold")
_GATE = 1.0


@rare
def write_features(fleet, index, row, fit):  # type: ignore[no-untyped-def]
    """Write what is seen of an offered call, `row` (W,), and how each row is for it, `fit` (N + 1,).

    A replica is OPEN where the call fits its memory; holding is OPEN unless such a replica is idle.
    """
    call, now, replicas = fleet.calls[index], fleet.now[0], len(fleet.replicas)
    row[0] = math.log1p(now.held / replicas)
    row[1] = now.active_tokens / now.memory
    row[2] = call.prompt * replicas / now.memory
    row[3] = math.log1p(now.time - call.asked_s)
    row[4] = 1.0 if call.place != NONE else 0.0
    row[5] = math.log1p(expected_tokens(fleet, call))
    is_idle = False
    for replica in range(replicas):
        here, at = fleet.replicas[replica], _HEAD + _WIDTH * replica
        hit = found(fleet, call, replica)
        new = call.target - hit
        new_s = here.prefill_s * new + here.attention_s * new * (hit + new / 2)
        row[at] = 0.01 / here.step_s
        row[at + 1] = 1e-5 / here.prefill_s if here.prefill_s > 0.0 else 0.0
        row[at + 2] = math.log1p(here.calls)
        row[at + 3] = math.log1p(here.waiting)
        row[at + 4] = math.log1p(here.prefill_s * here.backlog)
        row[at + 5] = memory_now(here, now.time)
        row[at + 6] = (here.used - here.pinned) / here.kv_tokens
        row[at + 7] = here.active / here.kv_tokens
        row[at + 8] = 10.0 * (here.step_s + here.call_s * here.decoding + here.context_s * here.context)
        row[at + 9] = hit / call.prompt
        row[at + 10] = math.log1p(new_s)
        row[at + 11] = math.log1p(new_s * here.decoding)
        row[at + 12] = 1.0 if fleet.agents[call.session, call.agent].home == replica else 0.0
        row[at + 13] = max(-1.0, room_for(fleet, call, here, replica, _GATE))
        row[at + _HOLD] = 0.0
        fit[replica] = OPEN if fits(fleet, index, replica) else CLOSED
        is_idle |= fit[replica] == OPEN and has_nothing_to_do(here)
    at = _HEAD + _WIDTH * replicas
    row[at : at + _WIDTH] = 0.0
    row[at] = row[at + _HOLD] = 1.0
    fit[replicas] = CLOSED if is_idle else OPEN
