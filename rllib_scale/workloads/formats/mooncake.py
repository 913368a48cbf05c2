"""Requests to a language model as Mooncake publishes them (github.com/kvcache-ai/Mooncake, FAST25-release, Apache-2.0).

JSON lines, one request per line: `timestamp` [ms], `input_length` and `output_length` [tokens], and `hash_ids`, which
stand for blocks of 512 tokens with all that is before them: the blocks that an earlier request began with are in the
cache. Requests with the same `session_id`, which AIPerf added, are turns of one conversation, and one without
`timestamp` comes `delay` [ms] after the turn before it. Durations are not recorded: they are fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from rllib_scale.errors import UserError
from rllib_scale.workloads.formats.base import Format, Progress
from rllib_scale.workloads.formats.sessions import Call, Log, Prefixes, SessionMapping, read_calls
from rllib_scale.workloads.formats.sources import Amount, Block, Record, Whole
from rllib_scale.workloads.model import Workload


class MooncakeMapping(SessionMapping):
    """How requests become tasks."""

    block_size: Block = Field(
        default=512, description="tokens of a block of hash_ids [Mooncake: 512; 16 in traces of Qwen-Bailian]"
    )


class _Request(Record):
    timestamp: Amount | None = None
    input_length: Whole
    output_length: Whole
    hash_ids: list[int] | None = None
    session_id: str | None = None
    delay: Amount = 0.0


def read_workload(sources: Sequence[Path], mapping: MooncakeMapping, progress: Progress) -> Workload:
    """Read requests line by line."""
    prefixes, ends_s = Prefixes(), dict[str, float]()

    def add(request: _Request, where: str, log: Log, progress: Progress) -> None:
        session = request.session_id or where
        tokens = request.input_length
        if request.timestamp is not None:
            start_s = request.timestamp / 1000
        elif session in ends_s:
            start_s = ends_s[session] + request.delay / 1000
        else:
            raise UserError(f"{where}: timestamp is missing, which only later turns of a session_id may lack")
        if request.hash_ids is None:
            progress.counts["requests without hash_ids, of which nothing is cached"] += 1
        new = tokens if request.hash_ids is None else prefixes.new_tokens(request.hash_ids, mapping.block_size, tokens)
        call = Call(start_s, None, tokens, request.output_length, new, 0)
        ends_s[session] = start_s + mapping.fitted_s(call)
        log.add(session, call, ends_turn=True)

    return read_calls(_Request, add, sources, mapping, progress)


FORMAT = Format(
    "mooncake",
    "requests of Mooncake's traces with hash_ids, one per JSON line (github.com/kvcache-ai/Mooncake)",
    MooncakeMapping,
    read_workload,
)
