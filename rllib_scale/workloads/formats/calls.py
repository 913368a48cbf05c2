"""Calls of language models, the agents that made them, and the blocks of prompts that they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Block:
    """A block of prompts with all that is before it.

    Attributes:
        above: the block before it.
        tokens: of prompts up to its end.
        is_read: whether a prompt that went through it was played, see `read_before`.
    """

    above: Block | None
    tokens: int
    is_read: bool = False

    def common(self, other: Block) -> int:
        """Tokens with which prompts through this block and through another one begin alike."""
        a: Block | None = self
        b: Block | None = other
        while a is not b:
            if b is None or (a is not None and a.tokens > b.tokens):
                assert a is not None
                a = a.above
            elif a is None or b.tokens > a.tokens:
                b = b.above
            else:
                a, b = a.above, b.above
        return a.tokens if a is not None else 0


class Blocks:
    """The blocks of all prompts so far, by their hashes.

    Attributes:
        prompts: so many had hashes.
        misfits: prompts that have more hashes than blocks, or fewer than whole ones.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[Block | None, int], Block] = {}
        self.prompts = self.misfits = self._tokens = self._hashes = 0

    @property
    def tokens_per_hash(self) -> float:
        """Mean over all prompts, of whose last blocks half is filled."""
        return self._tokens / max(1.0, self._hashes - self.prompts / 2)

    def add(self, hashes: Sequence[int], size: int, tokens: int) -> Block | None:
        """The last block of a prompt, which may be partly filled.

        Args:
            hashes: of its blocks.
            size: tokens of a whole block.
            tokens: of the prompt.
        """
        self.prompts += 1
        self.misfits += not tokens // size <= len(hashes) <= -(-tokens // size)
        self._tokens, self._hashes = self._tokens + tokens, self._hashes + len(hashes)
        at: Block | None = None
        for number, name in enumerate(hashes, 1):
            block = self._found.get((at, name))
            if block is None:
                block = self._found[at, name] = Block(at, number * size)
            at = block
        return at


def last_whole(block: Block | None, tokens: int) -> Block | None:
    """The last block of a prompt of so many tokens that these fill."""
    while block is not None and block.tokens > tokens:
        block = block.above
    return block


def read_before(block: Block | None) -> int:
    """Tokens of a prompt through this block with which an earlier one began; from now on, this one is earlier."""
    while block is not None and not block.is_read:
        block.is_read = True
        block = block.above
    return 0 if block is None else block.tokens


@dataclass(slots=True)
class Call:
    """One answer of a language model.

    Attributes:
        start_s: when it began [s], from the start of the session.
        duration_s: its duration [s], above 0; None if it was not recorded.
        input_tokens: the whole prompt, cached or not.
        output_tokens: of the answer.
        new_tokens: of the prompt that were in no cache.
        turn: the user's turn that it belongs to, counted from 0.
        end_s: when it ended [s], estimated by `Sessions`.
        needs: the tasks that it waited for, by their numbers in the session; set by `Sessions`.
        block: the last whole block of its prompt, where the trace has hashes of blocks.
        is_work: whether a server worked for it; other records of calls are left out.
        cached: tokens that it read from a cache, as recorded.
        written: tokens that it wrote to a cache, as recorded.
        is_beside: whether these are beside what was recorded as the prompt.
    """

    start_s: float
    duration_s: float | None
    input_tokens: int
    output_tokens: int
    new_tokens: int
    turn: int
    end_s: float = 0.0
    needs: list[int] = field(default_factory=list)
    block: Block | None = None
    is_work: bool = True
    cached: int = 0
    written: int = 0
    is_beside: bool = False

    def known_to(self, before: Call | None) -> int:
        """Tokens of its prompt that the call before it of its agent computed, as far as blocks, or lengths, tell.

        A prompt that goes on from the one before holds that prompt and its answer.
        """
        if before is None:
            return 0
        goes_on = self.input_tokens >= before.input_tokens
        if self.block is not None and before.block is not None:
            common = self.block.common(before.block)
            if common < before.block.tokens or not goes_on:
                return common
        return min(self.input_tokens, before.input_tokens + before.output_tokens) if goes_on else 0


@dataclass(slots=True)
class Agent:
    """The calls of an agent in the order of their starts, and the subagents that it started.

    `prefix`: tokens of the tools and of the system prompt that begin each of its prompts, where they are recorded.
    """

    calls: list[Call]
    subagents: list[Agent] = field(default_factory=list)
    prefix: tuple[int, int] = (0, 0)

    def add(self, call: Call) -> None:
        """Add a call that says nothing of what was in a cache, if a server worked for it.

        Without blocks, a shorter prompt than the one before is a different one: none of it is assumed to be cached.
        """
        if call.is_work:
            call.new_tokens -= call.known_to(self.calls[-1] if self.calls else None)
            self.calls.append(call)

    def start(self, subagent: Agent, counts: Counter[str]) -> None:
        """Add a subagent; one without calls is only counted."""
        if subagent.calls:
            self.subagents.append(subagent)
        else:
            counts["subagents without calls"] += 1

    def all_calls(self) -> Iterator[Call]:
        """Its calls, then those of its subagents: the order of the tasks."""
        yield from self.calls
        for agent in self.subagents:
            yield from agent.all_calls()

    def all_agents(self) -> Iterator[Agent]:
        """Itself, then its subagents at any depth: the order of `all_calls`."""
        yield self
        for agent in self.subagents:
            yield from agent.all_agents()
