"""What a replica keeps between calls: contexts of agents, and prefixes that sessions share.

Memory counts tokens. Shared prefixes form a tree: each goes on from the one above it, and is kept only while that is.
A running call pins its own tokens and its prefixes; a kept context refers to its last prefix. What is not pinned is
kept in the order of its last use and evicted from the oldest on: a context token by token from its end, as vLLM frees
blocks, a prefix as a whole when no context and no prefix goes on from it.
"""

from __future__ import annotations

from rllib_scale.compiled import rare
from rllib_scale.simulator.replicas.state import NONE


@rare
def find(fleet, session, agent, replica):  # type: ignore[no-untyped-def]
    """Row of the context that a replica keeps of an agent, or NONE."""
    row = fleet.agents[session, agent].kept
    while row != NONE and fleet.kept[row].replica != replica:
        row = fleet.kept[row].next
    return row


@rare
def found(fleet, call, replica):  # type: ignore[no-untyped-def]
    """Tokens of a call that a replica would find in its caches now; at least one has to be computed."""
    tokens, prefix = call.prefix_tokens, call.prefix
    while prefix != NONE and fleet.prefixes[replica, prefix].tokens == 0:
        tokens, prefix = fleet.tree[prefix].before, fleet.tree[prefix].above
    row = find(fleet, call.session, call.agent, replica)
    if row != NONE:
        tokens = max(tokens, min(fleet.kept[row].before + fleet.kept[row].tokens, call.reusable))
    return min(tokens, call.target - 1)


@rare
def pin(fleet, call, replica):  # type: ignore[no-untyped-def]
    """Let a call run with its prefixes, which it computes where they are not kept."""
    here, prefix, end = fleet.replicas[replica], call.prefix, call.prefix_tokens
    while prefix != NONE:
        shared, place = fleet.prefixes[replica, prefix], fleet.tree[prefix]
        if shared.running == 0:
            if shared.row != NONE:  # unused so far
                drop(fleet, shared.row)
            if shared.tokens == 0:
                shared.tokens = end - place.before
                here.used += shared.tokens
                if place.above != NONE:
                    fleet.prefixes[replica, place.above].kept += 1
            here.pinned += shared.tokens
        shared.running += 1
        prefix, end = place.above, place.before


@rare
def unpinned(fleet, call, replica):  # type: ignore[no-untyped-def]
    """Tokens of a call's prefixes with which no call runs."""
    prefix, end = call.prefix, call.prefix_tokens
    while prefix != NONE and fleet.prefixes[replica, prefix].running == 0:
        end, prefix = fleet.tree[prefix].before, fleet.tree[prefix].above
    return call.prefix_tokens - end


@rare
def keep(fleet, call, replica, tokens, time):  # type: ignore[no-untyped-def]
    """Keep the first `tokens` of a call that leaves the batch, with the prefix that it used."""
    now, here = fleet.now[0], fleet.replicas[replica]
    old = find(fleet, call.session, call.agent, replica)
    if old != NONE:  # of a call of the same agent that ran beside this one
        here.used -= fleet.kept[old].tokens
        drop(fleet, old)
    own = tokens - call.prefix_tokens
    if own > 0:
        row = now.free_kept
        context, agent = fleet.kept[row], fleet.agents[call.session, call.agent]
        now.free_kept = context.next
        now.kept_left -= 1
        context.session, context.agent, context.replica = call.session, call.agent, replica
        context.prefix, context.before = call.prefix, call.prefix_tokens
        context.tokens, context.kept_s = own, time
        context.next, agent.kept = agent.kept, row
        _append(fleet, here, row)
        if call.prefix != NONE:
            fleet.prefixes[replica, call.prefix].kept += 1
    prefix = call.prefix
    while prefix != NONE:
        shared = fleet.prefixes[replica, prefix]
        shared.running -= 1
        if shared.running == 0:
            here.pinned -= shared.tokens
            if shared.kept == 0:
                _release_prefix(fleet, replica, prefix, time, False)
        prefix = fleet.tree[prefix].above


@rare
def drop(fleet, row):  # type: ignore[no-untyped-def]
    """Forget a kept context or an unused prefix; its tokens are still counted as used."""
    now, context = fleet.now[0], fleet.kept[row]
    here = fleet.replicas[context.replica]
    if context.older != NONE:
        fleet.kept[context.older].newer = context.newer
    else:
        here.oldest = context.newer
    if context.newer != NONE:
        fleet.kept[context.newer].older = context.older
    else:
        here.newest = context.older
    replica, prefix = context.replica, context.prefix
    if context.agent != NONE:
        forget_owner(fleet, row)
    if context.agent == NONE and context.session == NONE:
        fleet.prefixes[replica, prefix].row = NONE
    else:
        _lose(fleet, replica, prefix, context.kept_s)
    context.next, now.free_kept = now.free_kept, row
    now.kept_left += 1


@rare
def _lose(fleet, replica, prefix, time):  # type: ignore[no-untyped-def]
    """A prefix, or NONE, loses a context or prefix that went on from it; unused, it is the next to be evicted."""
    if prefix != NONE:
        shared = fleet.prefixes[replica, prefix]
        shared.kept -= 1
        if shared.kept == 0 and shared.running == 0:
            _release_prefix(fleet, replica, prefix, time, True)


@rare
def forget_owner(fleet, row):  # type: ignore[no-untyped-def]
    """Take a context from the list of its agent, whose calls will not find it."""
    context = fleet.kept[row]
    agent = fleet.agents[context.session, context.agent]
    if agent.kept == row:
        agent.kept = context.next
    else:
        other = agent.kept
        while fleet.kept[other].next != row:
            other = fleet.kept[other].next
        fleet.kept[other].next = context.next
    context.agent = NONE


@rare
def _release_prefix(fleet, replica, prefix, time, is_next):  # type: ignore[no-untyped-def]
    """Put a prefix that nothing uses into the order of eviction: next of all, or last."""
    now, here = fleet.now[0], fleet.replicas[replica]
    row = now.free_kept
    context = fleet.kept[row]
    now.free_kept = context.next
    now.kept_left -= 1
    context.session, context.agent, context.replica = NONE, NONE, replica
    context.prefix, context.tokens, context.kept_s = prefix, fleet.prefixes[replica, prefix].tokens, time
    fleet.prefixes[replica, prefix].row = row
    if not is_next or here.oldest == NONE:
        _append(fleet, here, row)
        return
    context.older, context.newer = NONE, here.oldest
    fleet.kept[here.oldest].older = row
    here.oldest = row


@rare
def _append(fleet, here, row):  # type: ignore[no-untyped-def]
    context = fleet.kept[row]
    context.older, context.newer = here.newest, NONE
    if here.newest != NONE:
        fleet.kept[here.newest].newer = row
    else:
        here.oldest = row
    here.newest = row


@rare
def make_room(fleet, here, tokens):  # type: ignore[no-untyped-def]
    """Evict until `tokens` more fit."""
    while here.used + tokens > here.kv_tokens:
        row = here.oldest
        context = fleet.kept[row]
        if context.session == NONE:
            replica, prefix, time = context.replica, context.prefix, context.kept_s
            here.used -= context.tokens
            here.evicted += context.tokens
            fleet.prefixes[replica, prefix].tokens = 0
            drop(fleet, row)
            _lose(fleet, replica, fleet.tree[prefix].above, time)
            continue
        taken = min(context.tokens, here.used + tokens - here.kv_tokens)
        here.used -= taken
        here.evicted += taken
        context.tokens -= taken
        if context.tokens == 0:
            drop(fleet, row)


@rare
def protected(fleet, here, call, replica):  # type: ignore[no-untyped-def]
    """Tokens of contexts kept for `keep_s`, without that of the call, and when the first of them may be evicted."""
    tokens, first_s = 0, float("inf")
    own = find(fleet, call.session, call.agent, replica)
    row = here.newest
    while row != NONE and fleet.kept[row].kept_s + here.keep_s > here.clock:
        if row != own and fleet.kept[row].session != NONE:
            tokens += fleet.kept[row].tokens
            first_s = fleet.kept[row].kept_s + here.keep_s
        row = fleet.kept[row].older
    return tokens, first_s
