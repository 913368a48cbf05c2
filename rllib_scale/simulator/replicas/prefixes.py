"""Prefixes that calls share: by the hashes of their blocks, or by the sizes of their tools and system prompts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rllib_scale.simulator.replicas.state import NONE, TREE
from rllib_scale.workloads.formats.calls import Block
from rllib_scale.workloads.formats.sessions import RecordedSession


def shared_prefixes(sessions: Sequence[RecordedSession]) -> list[list[Block | None]]:
    """Of each session and call the end of the prefix that it shares.

    It is the last block that prompts of another agent have, too; of an agent whose prefix is recorded, that prefix,
    which agents with the same number of tokens of tools and of the system prompt share.
    """
    recorded = dict[tuple[int, int], Block]()
    users = dict[Block, int]()  # the agent that has a block; NONE: several
    agents = [agent for session in sessions for agent in session.agents]
    for number, agent in enumerate(agents):
        if sum(agent.prefix):
            recorded.setdefault(agent.prefix, Block(None, sum(agent.prefix)))
            continue
        for call in agent.calls:
            block = call.block
            while block is not None and users.get(block) not in (number, NONE):
                users[block] = NONE if block in users else number
                block = block.above
    ends = dict[Block | None, Block | None]({None: None})
    found = list[list[Block | None]]()
    for session in sessions:
        found.append([])
        for agent in session.agents:
            own = recorded.get(agent.prefix)
            found[-1] += [own or _last_shared(call.block, users, ends) for call in agent.calls]
    return found


def _last_shared(block: Block | None, users: dict[Block, int], ends: dict[Block | None, Block | None]) -> Block | None:
    path = list[Block]()
    while block is not None and block not in ends and users[block] != NONE:
        path.append(block)
        block = block.above
    end = ends.get(block, block)
    ends.update((each, end) for each in path)
    return end


def tree_of(ends: Iterable[Block | None]) -> tuple[NDArray[Any], dict[Block, int]]:
    """TREE of the prefixes between these ends and the blocks at which they part, and the number of each."""
    numbers, seen = dict[Block, int](), set[Block]()
    for end in ends:
        block = end
        while block is not None and block not in seen:
            seen.add(block)
            block = block.above
        for each in (end, block):
            if each is not None:
                numbers.setdefault(each, len(numbers))
    tree = np.zeros(max(1, len(numbers)), TREE)
    tree["above"] = NONE
    for end, number in numbers.items():
        above = end.above
        while above is not None and above not in numbers:
            above = above.above
        if above is not None:
            tree[number] = numbers[above], above.tokens
    return tree, numbers
