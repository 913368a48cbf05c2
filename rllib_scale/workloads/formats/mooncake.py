"""Requests to a language model as Mooncake publishes them (github.com/kvcache-ai/Mooncake, FAST25-release, Apache-2.0).

JSON lines, one request per line: `timestamp` [ms], `input_length` and `output_length` [tokens], and `hash_ids`, which
are hashes of blocks of 512 tokens with all that is before them: the blocks that an earlier request, by its `timestamp`,
began with are in the cache. Requests with the same `session_id`, which AIPerf added, are turns of one conversation, and
one without `timestamp` comes `delay` [ms] after the turn before it. Durations are not recorded: they are fitted.
"""

from __future__ import annotations

from functools import partial

from pydantic import Field

from rllib_scale.errors import UserError
from rllib_scale.workloads.formats.fields import Amount, BlockSize, Record, Whole
from rllib_scale.workloads.formats.log import Log
from rllib_scale.workloads.formats.mapping import SessionMapping
from rllib_scale.workloads.formats.sessions import Sessions, read_calls, session_format


class MooncakeMapping(SessionMapping):
    """Options to turn requests into tasks."""

    block_size: BlockSize = Field(
        default=512, description="tokens of a block of hash_ids [Mooncake: 512; 16 in traces of Qwen-Bailian]"
    )


class _Request(Record):
    timestamp: Amount | None = None
    input_length: Whole
    output_length: Whole
    hash_ids: list[int] | None = None
    session_id: str | None = None
    delay: Amount = 0.0


def _add(request: _Request, where: str, log: Log, sessions: Sessions) -> None:
    session, tokens, hashes = request.session_id or where, request.input_length, request.hash_ids
    if request.timestamp is None and session not in log:
        raise UserError(f"{where}: timestamp is missing, which only later turns of a session_id may lack")
    sessions.progress.seen.is_equal("requests the same as an earlier one, kept", repr(request))
    block = None
    if hashes is None:
        sessions.progress.counts["requests without hash_ids, of which nothing is cached"] += 1
    else:
        block = sessions.blocks.add(hashes, sessions.mapping.block_size, tokens)
    call = sessions.call((request.timestamp or 0.0) / 1000, None, tokens, request.output_length)
    after_s = request.delay / 1000 if request.timestamp is None else None
    log.add(session, call, ends_turn=True, block=block, after_s=after_s)


FORMAT = session_format(
    "mooncake",
    "requests of Mooncake's traces with hash_ids, one per JSON line (github.com/kvcache-ai/Mooncake)",
    MooncakeMapping,
    partial(read_calls, _Request, _add),
)
