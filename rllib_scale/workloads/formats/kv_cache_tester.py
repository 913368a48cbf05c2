"""Sessions of coding agents as github.com/callanjfox/kv-cache-tester publishes them (`traces/`, Apache-2.0).

A session is one JSON object; a file holds one, or one per line: `{"id": ..., "requests": [...]}`. Of a request,
`t` [s from the session's start], `type`, `in` and `out` [tokens], `stop`, and the optional `api_time` [s] and
`input_types` are read. A request of type `subagent` has nested `requests`, whose `t` counts from the subagent's start.
Sessions and subagents may have `tool_tokens` and `system_tokens`, the prefix of each of their prompts.

Facts of real files that their description does not state:

- `t` of a subagent is when its result came: it began `duration_ms` earlier. If that is null (`status` async_launched),
  `t` is when it began, and its parent continues meanwhile.
- `t` of a request is in whole seconds, `api_time` in hundredths: calls seem to overlap by up to a second.
- A request whose stream was interrupted has no `api_time` and an empty `stop`. Gaps after such calls (median 7 s,
  quartiles 4 and 15) are like those after a tool (9, 5 and 19), not like a person's (median 207): it ends no turn.
- `think_time` is the gap rounded to seconds; the clocks are more exact, and are used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from rllib_scale.errors import UserError
from rllib_scale.workloads.formats.base import Format, Progress
from rllib_scale.workloads.formats.sessions import Agent, Call, SessionMapping, Sessions, read_sessions
from rllib_scale.workloads.formats.sources import Amount, Record, Whole, read_json


class _Request(Record):
    type: Literal["s", "n"]
    t: Amount
    input_tokens: Whole = Field(alias="in")
    output_tokens: Whole = Field(alias="out")
    stop: str
    api_time: Amount | None = None
    input_types: Any = None


class _Subagent(Record):
    type: Literal["subagent"]
    t: Amount
    duration_ms: Amount | None = None
    tool_tokens: Whole | None = None
    system_tokens: Whole | None = None
    requests: list[_Entry]


_Entry = Annotated[_Request | _Subagent, Field(discriminator="type")]


class _Session(Record):
    tool_tokens: Whole | None = None
    system_tokens: Whole | None = None
    requests: list[_Entry]


def _add(session: _Session, where: str, sessions: Sessions) -> None:
    sessions.add(_agent(session, where, sessions.progress.counts))


def recorded(sources: Sequence[Path], progress: Progress) -> list[tuple[list[Call], list[Agent]]]:
    """Calls of each session, linked, agent by agent, and its agents in the same order.

    Raises:
        UserError: a source cannot be read, or a record is bad.
    """
    sessions, found = Sessions(SessionMapping(), progress), list[tuple[list[Call], list[Agent]]]()

    def add(session: _Session, where: str) -> None:
        agent = _agent(session, where, progress.counts)
        if agent.calls:
            found.append((sessions.linked(agent), list(agent.all_agents())))

    read_json(sources, _Session, add, progress)
    return found


def _agent(
    recording: _Session | _Subagent,
    where: str,
    counts: Counter[str],
    began_s: float = 0.0,
    turn: int | None = None,
) -> Agent:
    """An agent from its requests. Those of a subagent all belong to the `turn` in which it was started."""
    calls: list[Call] = []
    subagents: list[Agent] = []
    current = turn or 0
    stop: str | None = None
    last_t, context = 0.0, 0
    for i, entry in enumerate(recording.requests):
        at, t = f"{where}, request {i}", entry.t
        if t < last_t:
            raise UserError(f"{at}: t is {t:g}, before the {last_t:g} of the request above: the clock runs backwards")
        last_t = t
        if isinstance(entry, _Subagent):
            start_s = began_s + t - (entry.duration_ms or 0.0) / 1000
            if start_s < began_s:
                raise UserError(f"{at}: duration_ms is {entry.duration_ms}: longer than its t, {t:g}")
            agent = _agent(entry, at, counts, start_s, current)
            if agent.calls:
                subagents.append(agent)
            else:
                counts["subagents without calls"] += 1
            continue
        if turn is None and stop is not None and _is_person(stop, entry):
            current += 1
        stop = entry.stop
        tokens, answer = entry.input_tokens, entry.output_tokens
        # A prompt shorter than the one before it is a different one: none of it is assumed to be cached.
        new = tokens if calls and tokens < calls[-1].input_tokens else max(0, tokens - context)
        context = tokens + answer
        calls.append(Call(began_s + t, entry.api_time or None, tokens, answer, new, current))
    return Agent(calls, subagents, (recording.tool_tokens or 0, recording.system_tokens or 0))


def _is_person(stop: str, entry: _Request) -> bool:
    """Whether a person spoke between a call that ended with `stop` and the request `entry`."""
    if stop == "tool_use":
        kinds = entry.input_types
        return isinstance(kinds, list) and bool(kinds) and "tool_result" not in kinds
    return bool(stop)


FORMAT = Format(
    "kv-cache-tester",
    "sessions of coding agents, one JSON object per file or per line (github.com/callanjfox/kv-cache-tester)",
    SessionMapping,
    partial(read_sessions, _Session, _add),
)
