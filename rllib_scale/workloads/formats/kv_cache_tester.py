"""Sessions of coding agents as github.com/callanjfox/kv-cache-tester publishes them (`traces/`, Apache-2.0).

A session is one JSON object, in a file of its own or one a line: `{"id": ..., "requests": [...]}`. Of a request are
read `t` [s from the session's start], `type`, `in` and `out` [tokens], `stop`, and where they stand `api_time` [s] and
`input_types`. One of type `subagent` holds `requests` of its own, whose `t` counts from the subagent's start.

What real files hold and their description does not say:

- `t` of a subagent is when its result came: it began `duration_ms` earlier. Where that is null (`status`
  async_launched) `t` is when it began, and its parent goes on meanwhile.
- `t` of a request is in whole seconds, `api_time` in hundredths: calls seem to overlap by up to a second.
- A request of which the stream broke off has no `api_time` and an empty `stop`. Gaps after such calls are those after a
  tool (median 7 s, quartiles 4 and 15, against 9, 5 and 19; a person takes 207), so they are taken as that:
  `empty_stop`.
- `think_time` is the gap rounded to seconds; the clocks are more exact, and are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from rllib_scale.errors import UserError
from rllib_scale.workloads.formats import sources as read
from rllib_scale.workloads.formats.base import Format, Progress
from rllib_scale.workloads.formats.sessions import Agent, Call, Session, SessionMapping, read_sessions
from rllib_scale.workloads.model import Workload


class KvCacheTesterMapping(SessionMapping):
    """How sessions of kv-cache-tester become workflows."""

    empty_stop: Literal["tool", "person"] = Field(
        default="tool",
        description="what followed a call whose stop is empty, as its stream broke off: a tool, or a person and so a "
        "new turn [the gaps after such calls are those of tools]",
    )


class _Request(read.Record):
    type: Literal["s", "n"]
    t: read.Seconds
    input_tokens: read.Whole = Field(alias="in")
    output_tokens: read.Whole = Field(alias="out")
    stop: str
    api_time: read.Seconds | None = None
    input_types: Any = None


class _Subagent(read.Record):
    type: Literal["subagent"]
    t: read.Seconds
    duration_ms: read.Seconds | None = None
    requests: list[_Entry]


_Entry = Annotated[_Request | _Subagent, Field(discriminator="type")]


class _Session(read.Record):
    requests: list[_Entry]


def read_workload(sources: Sequence[Path], mapping: KvCacheTesterMapping, progress: Progress) -> Workload:
    """Read sessions, one a file or one a line."""

    def session(data: _Session, where: str, progress: Progress) -> Session:
        return Session(0.0, _agent(data.requests, where, mapping, progress))

    return read_sessions(sources, mapping, progress, _Session, session)


def _agent(
    requests: list[_Request | _Subagent],
    where: str,
    mapping: KvCacheTesterMapping,
    progress: Progress,
    began_s: float = 0.0,
    turn: int | None = None,
) -> Agent:
    """An agent's requests. Those of a subagent all belong to the `turn` in which it was sent out."""
    calls: list[Call] = []
    subagents: list[Agent] = []
    now = turn or 0
    stop: str | None = None
    last_t, context = 0.0, 0
    for i, entry in enumerate(requests):
        at, t = f"{where}, request {i}", entry.t
        if t < last_t:
            raise UserError(f"{at}: t is {t:g}, before the {last_t:g} of the request above: the clock runs backwards")
        last_t = t
        if isinstance(entry, _Subagent):
            start_s = began_s + t - (entry.duration_ms or 0.0) / 1000
            if start_s < began_s:
                raise UserError(f"{at}: duration_ms is {entry.duration_ms}: longer than there is before its t, {t:g}")
            agent = _agent(entry.requests, at, mapping, progress, start_s, now)
            if agent.calls:
                subagents.append(agent)
            else:
                progress.counts["subagents without calls"] += 1
            continue
        if turn is None and stop is not None and _person(stop, entry, mapping):
            now += 1
        stop = entry.stop
        tokens, answer = entry.input_tokens, entry.output_tokens
        # A prompt shorter than what was said before is another one: nothing of it is taken to be in the cache.
        new = tokens if calls and tokens < calls[-1].input_tokens else max(0, tokens - context)
        context = tokens + answer
        calls.append(Call(began_s + t, entry.api_time or None, tokens, answer, new, now))
    return Agent(calls, subagents)


def _person(stop: str, entry: _Request, mapping: KvCacheTesterMapping) -> bool:
    """Whether a person spoke between a call that ended with `stop` and the request `entry`."""
    if stop == "tool_use":
        kinds = entry.input_types
        return isinstance(kinds, list) and bool(kinds) and "tool_result" not in kinds
    return mapping.empty_stop == "person" if not stop else True


FORMAT = Format(
    "kv-cache-tester",
    "sessions of coding agents, one JSON object a file or a line (github.com/callanjfox/kv-cache-tester)",
    KvCacheTesterMapping,
    read_workload,
)
