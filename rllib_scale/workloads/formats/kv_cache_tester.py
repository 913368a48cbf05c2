"""Sessions of coding agents as github.com/callanjfox/kv-cache-tester publishes them (`traces/`, Apache-2.0).

A session is one JSON object; a file holds one, or one per line: `{"id": ..., "requests": [...]}`. A request of type
`subagent` has nested `requests`, whose `t` counts from the subagent's start. Facts that their pages do not state:

- `t` of a subagent is when its result came: it began `duration_ms` earlier. If that is null (`status` async_launched),
  `t` is when it began, and its parent continues meanwhile.
- `t` of a request is in whole seconds, `api_time` in hundredths: calls seem to overlap by up to a second.
- A request whose stream was interrupted has no `api_time` and an empty `stop`. Gaps after such calls (median 7 s,
  quartiles 4 and 15) are like those after a tool (9, 5 and 19), not like a person's (median 207): it ends no turn.
- `think_time` is the gap rounded to seconds; the clocks are more exact, and are used.
- `hash_ids` number the blocks of one session (`hash_id_scope` local): the same number in another session is another
  block. What sessions share is their tools and system prompt, by `tool_tokens` and `system_tokens`.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from rllib_scale.errors import UserError
from rllib_scale.workloads.formats.base import Seen
from rllib_scale.workloads.formats.calls import Agent, Block, Blocks, last_whole
from rllib_scale.workloads.formats.fields import Amount, BlockSize, Name, Record, Whole
from rllib_scale.workloads.formats.mapping import SessionMapping
from rllib_scale.workloads.formats.records import in_time
from rllib_scale.workloads.formats.sessions import Sessions, read_sessions, session_format


class _Request(Record):
    type: Literal["s", "n"]
    t: Amount  # s from the start of the session or subagent
    input_tokens: Whole = Field(alias="in")
    output_tokens: Whole = Field(alias="out")
    stop: str
    api_time: Amount | None = None  # s
    input_types: Any = None
    hash_ids: list[int] | None = None

    def follows_a_person(self, stop: str) -> bool:
        """Whether a person spoke between a call that ended with `stop` and this one."""
        kinds = self.input_types
        asked = isinstance(kinds, list) and bool(kinds) and "tool_result" not in kinds
        return asked if stop == "tool_use" else bool(stop)


class _Session(Record):
    id: Name | None = None
    tool_tokens: Whole | None = None  # these two are the prefix of each of its prompts
    system_tokens: Whole | None = None
    block_size: BlockSize = 64
    hash_id_scope: Literal["local", "global"] = "local"
    requests: list[_Entry]


class _Subagent(_Session):
    type: Literal["subagent"]
    agent_id: Name | None = None
    t: Amount
    duration_ms: Amount | None = None


_Entry = Annotated[_Request | _Subagent, Field(discriminator="type")]


def _add(session: _Session, where: str, sessions: Sessions) -> None:
    blocks, progress = sessions.blocks if session.hash_id_scope == "global" else Blocks(), sessions.progress
    agent = _Reader(sessions, blocks, session.block_size).agent(session, where)
    if session.id is None:
        progress.seen.is_equal("sessions the same as an earlier one, kept", repr(session))
    elif progress.seen.is_repeated("sessions", session.id):
        return
    for each in agent.all_agents() if session.hash_id_scope == "global" else ():
        each.prefix = (0, 0)  # the blocks say what it shares
    sessions.add(agent)


class _Reader:
    """Makes the agents of a session."""

    def __init__(self, sessions: Sessions, blocks: Blocks, block_size: int) -> None:
        self.sessions, self.blocks, self.block_size = sessions, blocks, block_size
        self.counts = sessions.progress.counts
        self.seen = Seen(self.counts)

    def agent(self, data: _Session, where: str, began_s: float = 0.0, turn: int | None = None) -> Agent:
        """An agent from its requests. Those of a subagent all belong to the `turn` in which it was started."""
        agent = Agent([], prefix=(data.tool_tokens or 0, data.system_tokens or 0))
        current, stop = turn or 0, ""
        for i, entry in in_time([*enumerate(data.requests)], lambda each: each[1].t, self.counts, "requests"):
            at, t = f"{where}, request {i}", entry.t
            if isinstance(entry, _Subagent):
                start_s = began_s + t - (entry.duration_ms or 0.0) / 1000
                if start_s < began_s:
                    raise UserError(f"{at}: duration_ms is {entry.duration_ms}: longer than its t, {t:g}")
                if not self.seen.is_repeated("subagents", where, entry.agent_id, t, str(entry.duration_ms)):
                    agent.start(self.agent(entry, at, start_s, current), self.counts)
                continue
            current += turn is None and entry.follows_a_person(stop)
            stop = entry.stop
            self.seen.is_equal("requests the same as an earlier one, kept", where, repr(entry))
            call = self.sessions.call(
                began_s + t, entry.api_time, entry.input_tokens, entry.output_tokens, turn=current
            )
            call.block = self._block(entry)
            agent.add(call)
        return agent

    def _block(self, request: _Request) -> Block | None:
        if request.hash_ids is None:
            return None
        tokens = request.input_tokens
        return last_whole(self.blocks.add(request.hash_ids, self.block_size, tokens), tokens)


FORMAT = session_format(
    "kv-cache-tester",
    "sessions of coding agents, one JSON object per file or per line (github.com/callanjfox/kv-cache-tester)",
    SessionMapping,
    partial(read_sessions, _Session, _add),
)
