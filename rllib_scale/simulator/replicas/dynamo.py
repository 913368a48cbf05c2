"""The cost by which Dynamo's KV router chooses [ai-dynamo/dynamo, docs/components/router/router-concepts.md].

A replica costs `overlap_score_weight` times the blocks of prefill, and the blocks of decoding, that it would have with
the call. Prefill: tokens beyond whole cached blocks, when they were sent, of calls without a first token. Decoding:
whole blocks of the prompts of all calls that were sent and not answered, a shared one once; answers do not count. The
router predicts both from what it has sent [lib/kv-router/src/sequences].
"""

from __future__ import annotations

import math

import numpy as np

from rllib_scale.compiled import rare
from rllib_scale.simulator.replicas.caches import found
from rllib_scale.simulator.replicas.state import NONE
from rllib_scale.workloads.random_numbers import uniform


@rare
def cost(fleet, known, call, replica, weight, block):  # type: ignore[no-untyped-def]
    """What a call would cost at a replica."""
    here = fleet.replicas[replica]
    tokens, blocks = 0, 0
    for at in range(here.calls):
        other = fleet.calls[fleet.batch[replica, at]]
        tokens += _prefill_tokens(other, block)
        blocks += _new_blocks(fleet, other, replica, block)
    row = here.first_waiting
    for _ in range(here.waiting):
        tokens += _prefill_tokens(fleet.calls[row], block)
        blocks += _new_blocks(fleet, fleet.calls[row], replica, block)
        row = fleet.calls[row].next
    tokens += call.prompt - found(known, call, replica) // block * block
    blocks += _new_blocks(fleet, call, replica, block)
    return weight * tokens / block + blocks


@rare
def _prefill_tokens(call, block):  # type: ignore[no-untyped-def]
    """Tokens that a call was sent with beyond whole cached blocks; 0 once it has its first token."""
    return 0 if call.first_s >= 0 else call.prompt - (call.prompt - call.in_flight) // block * block


@rare
def _new_blocks(fleet, call, replica, block):  # type: ignore[no-untyped-def]
    """Whole blocks of a call's prompt that no call has that was counted before it at this decision."""
    decision, prefix, end = fleet.now[0].decisions + 1, call.prefix, call.prefix_tokens
    blocks = call.prompt // block - end // block
    while prefix != NONE and fleet.prefixes[replica, prefix].counted != decision:
        fleet.prefixes[replica, prefix].counted = decision
        before = fleet.tree[prefix].before
        blocks += end // block - before // block
        prefix, end = fleet.tree[prefix].above, before
    return blocks


@rare
def sampled(fleet, temperature, rng):  # type: ignore[no-untyped-def]
    """One of the open replicas by a softmax of their costs, over the range of these [scheduling/selector.rs]."""
    least, most, total = np.inf, -np.inf, 0.0
    for here in fleet.replicas:
        if here.open:
            least, most = min(least, here.cost), max(most, here.cost)
    scale = 1.0 / ((most - least) * temperature) if most > least else 0.0
    for here in fleet.replicas:
        if here.open:
            total += math.exp((least - here.cost) * scale)
    left, last = uniform(rng) * total, NONE
    for replica in range(len(fleet.replicas)):
        here = fleet.replicas[replica]
        if here.open and (last == NONE or left > 0.0):
            last = replica
            left -= math.exp((least - here.cost) * scale)
    return last
