"""The arrays of a fleet of replicas under sessions, which compiled code reads and writes.

Rows refer to rows of other tables by index, NONE is no row. Tables of calls, contexts, events and live sessions
grow when `loop.next_offer` says that they are full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rllib_scale.config.replicas import Replica
from rllib_scale.observation.replicas import HELD_CALLS

NONE = -1
OFFERS = 4
"""Held calls that are offered again at an event, where a rule does not say otherwise."""
CANDIDATES = 16
"""Of the held calls, those among which `release` chooses."""
FLEET_TERMS = ("one", *(feature.name for feature in HELD_CALLS.context))
"""1, and what `release` sees of the fleet."""
FLAGS = 2
"""Of a row of `release`, before CALL_TERMS: whether there is one, and whether it is no call."""
CALL_TERMS = tuple(feature.name for feature in HELD_CALLS.server[FLAGS:])
IDLE, READY, RUNNING = range(3)
"""Phases of a replica: nothing to do; at a boundary between steps; within planned steps."""
DONE, FULL, RELEASE = -1, -2, -3
"""How a run stops: at its time; where tables have to grow or be emptied; where a held call may go."""

_I, _F = np.int64, np.float64
REPLICA = np.dtype(
    [
        *((name, _F) for name in ("step_s", "call_s", "context_s", "prefill_s", "attention_s", "request_s", "keep_s")),
        ("overlap", _F),
        *((name, _I) for name in ("kv_tokens", "token_budget", "max_calls")),
        ("clock", _F),  # of the last boundary between steps
        ("first_s", _F),  # duration of the first of the planned steps
        ("growth_s", _F),  # by which each further one is longer
        ("busy_s", _F),
        ("phase", _I),
        ("planned", _I),  # steps
        ("chunk", _I),  # prefill tokens of each of several planned steps
        ("calls", _I),  # running, in the order of their admission
        ("decoding", _I),
        ("context", _I),  # tokens of the calls that decode
        ("decoded", _I),  # decode steps so far
        ("next_end", _I),  # decode step in which the next call ends
        ("pinned", _I),  # tokens of running calls and of the prefixes that they share
        ("used", _I),  # with kept contexts and prefixes
        ("backlog", _I),  # prefill tokens that calls here still need, estimated for those that wait
        ("in_flight", _I),  # prompt tokens that no cache had, when they were sent, of calls without a first token
        ("first_waiting", _I),
        ("last_waiting", _I),
        ("waiting", _I),
        ("oldest", _I),  # kept context, the first to be evicted
        ("newest", _I),
        ("active", _I),  # unique tokens of the agents that count here: running or idle
        ("first_idle", _I),  # of them, the one that has been idle longest
        ("last_idle", _I),
        ("evicted", _I),  # tokens
        ("preempted", _I),  # calls
        # Of the offered call, written by rules:
        ("open", _I),  # whether it fits, and the gate lets it through
        ("place", _F),  # weighted sum of PLACE_TERMS, with `release`
        *((name, _F) for name in ("more", "more_per_new", "lean", "lean_per_new")),  # see `gate.weigh_replicas`
        ("cost", _F),  # what `dynamo-kv` minimises
        # Of a group of adjacent replicas that are alike, in the first rows, see `release`:
        *((name, _I) for name in ("first", "idle")),  # its first replica; one that has nothing to do, or NONE
        ("most", _F),  # of `gate.room_at`, over its replicas
        ("reserved", _I),  # whether it waits for a call that was held for longer than `head_after_s`, see `release`
        # Of programs, where `thunder-agent` counts them:
        *((name, _I) for name in ("programs", "reasoning", "room", "turn")),
        ("acting", _F),
    ],
    align=True,
)
CALL = np.dtype(
    [
        *((name, _I) for name in ("session", "call", "agent", "prefix", "prefix_tokens", "prompt", "output")),
        ("reusable", _I),  # tokens that an earlier call of the agent may have left in a cache
        ("replica", _I),
        ("target", _I),  # tokens to compute before the next answer token
        ("computed", _I),  # of them; while decoding, at the start of decoding
        ("started", _I),  # decode step at which it began to decode; NONE before
        ("end", _I),  # decode step in which it ends
        ("generated", _I),  # at the start of decoding
        ("chunk", _I),
        ("estimate", _I),  # prefill tokens, when it was placed
        ("in_flight", _I),  # of them, those that its replica counts until its first token
        ("hit", _I),  # tokens found at the first admission
        ("prefilled", _I),  # tokens, those computed again included
        ("preemptions", _I),
        ("next", _I),  # in the queue of a replica, of held calls as they asked, or of free rows
        ("previous", _I),
        ("rank", _I),  # in the order in which calls are asked
        ("place", _I),  # in `Fleet.line`; NONE: it is not held
        ("key", _F),  # by which held calls are offered again, the least first
        ("asked_s", _F),
        ("placed_s", _F),
        ("admitted_s", _F),
        ("first_s", _F),
    ],
    align=True,
)
KEPT = np.dtype(
    [
        *((name, _I) for name in ("session", "agent", "replica", "prefix", "tokens")),
        ("before", _I),  # tokens of the prefix that the context begins with
        ("older", _I),
        ("newer", _I),
        ("next", _I),  # of the same agent on other replicas, or of free rows
        ("kept_s", _F),
    ],
    align=True,
)
"""A context that a replica keeps; a prefix that no context uses, with agent NONE."""
PREFIX = np.dtype([(name, _I) for name in ("tokens", "running", "kept", "row", "active", "counted")], align=True)
"""A shared prefix at a replica: its own tokens, 0 unless they are kept; calls that run with it, those of the prefixes
below it included; kept contexts and kept prefixes right below it; its row in the order of eviction; agents that count
there with it, and prefixes right below it with any; the last decision, from 1 on, that counted its blocks."""
TREE = np.dtype([("above", _I), ("before", _I)], align=True)
"""A shared prefix begins with the one above it, which has `before` tokens; or with none, NONE and 0."""
SESSION = np.dtype(
    [
        *((name, _I) for name in ("script", "number", "left", "next")),
        ("start_s", _F),
        ("answered_s", _F),  # its last answer; before the first one, its start
    ],
    align=True,
)
AGENT = np.dtype([(name, _I) for name in ("kept", "home", "active", "program")], align=True)
"""Of an agent of a live session: kept contexts, replica of its last call, its rows of `Fleet.active` (NONE: away) and
of `Fleet.programs`."""
ACTIVE = np.dtype(
    [
        *((name, _I) for name in ("session", "agent")),  # NONE: its session has ended
        *((name, _I) for name in ("replica", "tokens", "prefix", "prefix_tokens")),  # of a call, at its send or end
        ("calls", _I),  # that are not answered; none: it is idle
        ("older", _I),  # among the idle agents of the replica
        ("newer", _I),
        ("next", _I),  # of free rows
        ("until_s", _F),  # it is idle
    ],
    align=True,
)
"""An agent that counts at a replica: running or idle."""
PROGRAM = np.dtype(
    [
        ("number", _I),  # in the order in which they came, from 1 on; 0: a free row
        ("replica", _I),  # NONE: it is paused
        ("origin", _I),  # the replica before it was paused, or NONE
        ("tokens", _I),
        ("steps", _I),  # calls so far
        ("reasoning", _I),  # whether a call was asked since the last answer
        ("marked", _I),  # whether it is paused when it is answered
        ("paused", _I),  # in the order in which programs were paused, from 1 on; 0: it is not
        ("paused_tokens", _I),  # when it was paused
        ("chosen", _I),  # to be resumed
        ("first_held", _I),  # of its calls that wait
        ("last_held", _I),
        ("next", _I),  # of free rows
        ("acting_s", _F),  # its last answer
    ],
    align=True,
)
"""An agent as a program of `thunder-agent`, also after its session has ended."""
TASK = np.dtype(
    [
        *((name, _I) for name in ("prompt", "output", "reusable", "agent", "prefix", "prefix_tokens", "turn", "needs")),
        ("expected", _I),  # tokens of the answer, as far as a scheduler knows; 0: hidden
        ("first_next", _I),  # successors in `Fleet.successors`
        ("end_next", _I),
        ("gap_s", _F),  # between the last answer that it needs and its start
        ("release_s", _F),  # start of a turn, from the start of the session; NONE within a turn
    ],
    align=True,
)
"""A call of a script, the recording that a live session repeats."""
FLEET = np.dtype(
    [
        *(
            (name, _I)
            for name in ("free_calls", "free_kept", "free_sessions", "free_active", "free_programs", "events")
        ),
        # Free rows:
        *((name, _I) for name in ("calls_left", "kept_left", "sessions_left", "active_left", "programs_left")),
        ("asked", _I),  # calls so far
        ("held", _I),
        ("first_held", _I),  # in the order in which they asked
        ("last_held", _I),
        ("in_line", _I),  # of the held calls, those that this event has not offered yet
        ("offers", _I),  # held calls that are still to be offered at this event; NONE: no event is on
        ("cursor", _I),  # the next of those held for longer than `head_after_s`
        ("emptied", _I),  # the replica that has nothing to do since this event, or NONE
        ("made_room", _I),  # whether a send has, since held calls were offered last
        ("next_start", _I),  # in `starts`
        ("records", _I),
        ("decisions", _I),
        ("passed", _I),  # of them, those that held a call
        ("no_fit", _I),  # of them, those that named a replica too small for the call
        ("turn", _I),  # replica with which round robin goes on
        ("open_calls", _I),
        ("closed_loop", _I),
        ("live", _I),
        ("memory", _I),  # tokens, of all replicas
        ("time", _F),
        ("open_call_s", _F),  # integral of the calls that are asked and not answered over time
        ("active_tokens", _F),  # unique ones, of the agents that count
        ("active_token_s", _F),  # their integral over time
        ("active_for_s", _F),  # so long after its last answer an agent is idle, and then away
        ("ends_told", _I),  # whether all agents of a session are away when it has ended
        ("answers_told", _I),  # whether the lengths of answers are, when they have ended
        # Of the rule:
        ("gate", _F),  # share of a replica's memory that agents may fill; 0: no gate
        ("order", _F),  # minutes of waiting that 100,000 tokens of prefill are worth, in the order of held calls
        ("head_after_s", _F),
        ("most_offers", _I),  # held calls that are offered at an event
        ("releases", _I),  # whether a decision says which held call goes, see `release`
        ("overdue", _I),  # there: the call that goes next, as it was held for longer than `head_after_s`, or NONE
        ("learned", _F),  # share of its weights that counts, see `gate.weigh_replicas`
        # Of `thunder-agent`:
        ("interval_s", _F),  # between two times at which programs resume and are paused; 0: it is another rule
        ("resume_after_s", _F),
        ("acting_weight", _F),
        ("decays", _I),
        ("buffer", _I),  # tokens beside each program's own
        ("estimate", _F),  # tokens that are taken for each one of a prompt; 1 from the first answer on
        ("programs", _I),  # so far
        ("paused", _I),  # programs
        ("pauses", _I),  # so far
        ("first_resumed", _I),  # calls whose programs have just resumed
        ("last_resumed", _I),
    ],
    align=True,
)
START = np.dtype([("script", _I), ("skipped", _I), ("at_s", _F)], align=True)
"""A session to come: its first calls are skipped, as a closed loop starts in the middle of sessions."""
RECORD = np.dtype(
    [
        *((name, _I) for name in ("session", "script", "call", "turn", "replica", "prompt", "output", "reusable")),
        *((name, _I) for name in ("hit", "prefilled", "preemptions")),
        *((name, _F) for name in ("asked_s", "placed_s", "admitted_s", "first_s", "end_s")),
    ],
    align=True,
)
"""A completed call."""


class Fleet(NamedTuple):
    """All arrays; R replicas, S live sessions of at most M calls and A agents, P prefixes."""

    now: NDArray[Any]  # (1,) FLEET
    replicas: NDArray[Any]  # (R,)
    batch: NDArray[np.int64]  # (R, max_calls) rows of `calls`
    prefixes: NDArray[Any]  # (R, P)
    calls: NDArray[Any]
    kept: NDArray[Any]
    sessions: NDArray[Any]  # (S,)
    needs: NDArray[np.int64]  # (S, M) calls that a call still waits for
    agents: NDArray[Any]  # (S, A)
    active: NDArray[Any]  # agents that count
    programs: NDArray[Any]
    line: NDArray[np.int64]  # rows of the held calls: a heap of those `in_line`, then the others
    candidates: NDArray[np.int64]  # (CANDIDATES,) rows of `calls`
    call_terms: NDArray[np.float64]  # (CANDIDATES, CALL_TERMS)
    fleet_terms: NDArray[np.float64]  # (FLEET_TERMS,)
    tree: NDArray[Any]  # (P,)
    tasks: NDArray[Any]  # of all scripts
    first_task: NDArray[np.int64]  # (scripts + 1,)
    successors: NDArray[np.int64]  # within their script
    starts: NDArray[Any]
    event_s: NDArray[np.float64]  # a heap
    event: NDArray[np.int64]  # (events, 2)
    due: NDArray[np.float64]  # (2 T,) tournament of the replicas' next events
    records: NDArray[Any]
    spare: NDArray[np.int64]  # (1,) rows of events and records that one event may need


def new_fleet(
    replicas: Sequence[Replica],
    scripts: tuple[NDArray[Any], NDArray[Any], NDArray[np.int64], NDArray[np.int64]],
    starts: NDArray[Any],
    live: int,
    closed_loop: bool,
    active_for_s: float = 0.0,
    ends_told: bool = False,
) -> Fleet:
    """An empty fleet.

    Args:
        replicas: each with its coefficients and limits.
        scripts: shared prefixes (TREE), tasks (TASK) of all scripts, first task of each script, successors.
        starts: sessions to come (START); in a closed loop the first `live` at their times, each other one when a
            session ends.
        live: rows for live sessions; they grow.
        closed_loop: whether a session that ends is followed by the next one.
        active_for_s: so long after its last answer an agent counts.
        ends_told: whether the end of a session is told, whose agents then no longer count.
    """
    tree, tasks, first_task, successors = scripts
    most = int(np.diff(first_task).max())
    fans = int((tasks["end_next"] - tasks["first_next"]).max(initial=0))
    limits = max(replica.max_calls for replica in replicas)
    spare = limits * (fans + 2) + most + 2
    size = 1 << max(0, len(replicas) - 1).bit_length()
    now = np.zeros(1, FLEET)
    for name in ("first_held", "last_held", "cursor", "offers", "emptied", "first_resumed", "overdue"):
        now[name] = NONE
    now["closed_loop"], now["live"], now["active_for_s"], now["ends_told"] = closed_loop, live, active_for_s, ends_told
    now["head_after_s"], now["most_offers"], now["answers_told"] = np.inf, OFFERS, True
    now["memory"] = sum(replica.kv_tokens for replica in replicas)
    rows = np.zeros(len(replicas), REPLICA)
    for row, replica in zip(rows, replicas, strict=True):
        for name, value in replica.model_dump(exclude={"sources", "gpus"}).items():
            row[name] = value
    for name in ("first_waiting", "last_waiting", "oldest", "newest", "first_idle", "last_idle"):
        rows[name] = NONE
    prefixes = np.zeros((len(replicas), len(tree)), PREFIX)
    prefixes["row"] = NONE
    sizes = {"calls": (2 * live + 2, CALL), "kept": (4 * live + spare, KEPT), "sessions": (live + 2, SESSION)}
    sizes |= {"active": (4 * live + spare, ACTIVE), "programs": (live + 2, PROGRAM)}
    tables = {name: np.zeros(rows, kind) for name, (rows, kind) in sizes.items()}
    for name, table in tables.items():
        _chain(table, now[0], name)
    return Fleet(
        now=now,
        replicas=rows,
        batch=np.zeros((len(replicas), limits), _I),
        prefixes=prefixes,
        **tables,
        needs=np.zeros((live + 2, most), _I),
        agents=np.zeros((live + 2, int(tasks["agent"].max(initial=0)) + 1), AGENT),
        line=np.zeros(len(tables["calls"]), _I),
        candidates=np.zeros(CANDIDATES, _I),
        call_terms=np.zeros((CANDIDATES, len(CALL_TERMS))),
        fleet_terms=np.zeros(len(FLEET_TERMS)),
        tree=tree,
        tasks=tasks,
        first_task=first_task,
        successors=successors,
        starts=starts,
        event_s=np.zeros(4 * spare + 4 * live, _F),
        event=np.zeros((4 * spare + 4 * live, 2), _I),
        due=np.full(2 * size, np.inf),
        records=np.zeros(spare + 4096, RECORD),
        spare=np.array([spare], _I),
    )


def grown(fleet: Fleet) -> Fleet:
    """The fleet with larger tables where they are short, for `loop.next_offer` to go on."""
    now, spare, changes = fleet.now[0], int(fleet.spare[0]), dict[str, Any]()
    for name in ("calls", "kept", "sessions", "active", "programs"):
        table = getattr(fleet, name)
        if now[f"{name}_left"] < spare:
            added = np.zeros(len(table) + spare, table.dtype)
            _chain(added, now, name, first=len(table))
            changes[name] = np.concatenate([table, added])
            for other in {"sessions": ("needs", "agents"), "calls": ("line",)}.get(name, ()):
                rows = getattr(fleet, other)
                changes[other] = np.concatenate([rows, np.zeros((len(added), *rows.shape[1:]), rows.dtype)])
    if now["events"] + spare > len(fleet.event_s):
        more = len(fleet.event_s) + spare
        changes["event_s"] = np.concatenate([fleet.event_s, np.zeros(more)])
        changes["event"] = np.concatenate([fleet.event, np.zeros((more, 2), _I)])
    return fleet._replace(**changes)


def _chain(rows: NDArray[Any], now: Any, name: str, first: int = 0) -> None:
    """Put new rows, which get the indices from `first` on, before the free rows of a table."""
    rows["next"] = np.arange(first + 1, first + len(rows) + 1)
    rows["next"][-1] = now[f"free_{name}"] if first else NONE
    now[f"free_{name}"], now[f"{name}_left"] = first, now[f"{name}_left"] + len(rows)
