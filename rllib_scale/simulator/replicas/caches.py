"""What a replica keeps between calls: contexts of agents, and prefixes that sessions share.

Memory counts tokens. A running call pins its own tokens and its prefix; a kept context refers to its prefix. What is
not pinned is kept in the order of its last use and evicted from the oldest on: a context token by token from its end,
as vLLM frees blocks, a prefix as a whole when no context refers to it.
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
    prefix = 0
    if call.prefix != NONE and fleet.prefixes[replica, call.prefix].tokens > 0:
        prefix = call.prefix_tokens
    row = find(fleet, call.session, call.agent, replica)
    tokens = prefix
    if row != NONE:
        tokens = max(prefix, min(call.prefix_tokens + fleet.kept[row].tokens, call.reusable))
    return min(tokens, call.target - 1)


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
        context.prefix, context.tokens, context.kept_s = call.prefix, own, time
        context.next, agent.kept = agent.kept, row
        _append(fleet, here, row)
        if call.prefix != NONE:
            fleet.prefixes[replica, call.prefix].kept += 1
    if call.prefix != NONE:
        prefix = fleet.prefixes[replica, call.prefix]
        prefix.running -= 1
        if prefix.running == 0:
            here.pinned -= prefix.tokens
            if prefix.kept == 0:
                _release_prefix(fleet, replica, call.prefix, time, False)


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
    elif prefix != NONE:
        shared = fleet.prefixes[replica, prefix]
        shared.kept -= 1
        if shared.kept == 0 and shared.running == 0:
            _release_prefix(fleet, replica, prefix, context.kept_s, True)
    context.next, now.free_kept = now.free_kept, row
    now.kept_left += 1


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
            here.used -= context.tokens
            here.evicted += context.tokens
            fleet.prefixes[context.replica, context.prefix].tokens = 0
            drop(fleet, row)
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
