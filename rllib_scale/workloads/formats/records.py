"""Shared reading of a call's record in all importers: whether a server worked for it, its tokens, its clock."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from rllib_scale.workloads.formats.calls import Call

T = TypeVar("T")

DONE = re.compile(
    "|ok|unset|none|noerror|success|succeeded|successful|completed?|finished|done|stop|length|toolcalls|functioncall|"
    "tooluse|endturn|maxtokens|stopsequence|eos|contentfilter"
)
"""Statuses, and reasons for which an answer ended, of calls that a server has answered."""
FAILED = re.compile(
    "error|fail|cancel|abort|timeout|timedout|expired|reject|refus|denied|throttl|ratelimit|quota|toomany|overload|"
    "unavailable|exception|invalid|badrequest|unauthor|forbidden|notfound|incomplete|killed|dropped"
)
"""Parts of the statuses of calls that failed, were refused or given up."""
UNITS_S = (1e-9, 1e-6, 1e-3, 1.0)
DATED_S = 6e8, 4.1e9
"""Seconds since 1970 of 1989 and of 2099: between them a number says its unit."""


def has_failed(status: Any) -> bool | None:
    """Whether a call with this status failed, by a word or by a code of HTTP; None if that is not known.

    >>> [has_failed(status) for status in ("STATUS_CODE_ERROR", "rate-limited", 429, "200", "Success", None, "odd")]
    [True, True, True, False, False, False, None]
    """
    word = re.sub("[^a-z0-9]", "", str("" if status is None else status).lower()).removeprefix("statuscode")
    if word.isdecimal() and len(word) == 3:
        return word >= "400"
    if DONE.fullmatch(word):
        return False
    return True if FAILED.search(word) else None


def recorded_call(
    counts: Counter[str],
    start_s: float,
    duration_s: float | None,
    prompt: int | None,
    answer: int | None,
    *,
    status: Iterable[Any] = (),
    cached: int | None = None,
    written: int | None = None,
    new: int | None = None,
    total: int | None = None,
    turn: int = 0,
) -> Call:
    """A call as a source has it; what is odd about it is counted.

    Some vendors count what they read from a cache, and wrote to it, beside the prompt: where it is more than the
    prompt, it is. `Log` looks at all calls of a vendor.

    Args:
        counts: of the import.
        start_s: when it began [s].
        duration_s: None or 0: not recorded.
        prompt: tokens; None: not recorded.
        answer: the same.
        status: what the source says of its outcome, in one or several keys.
        cached: tokens of the prompt that were read from a cache.
        written: tokens of the prompt that were written to a cache.
        new: tokens of the prompt that were in no cache, where the source has them.
        total: tokens of prompt and answer.
        turn: the user's turn that it belongs to.
    """
    call = Call(start_s, duration_s or None, prompt or 0, answer or 0, prompt or 0, turn)
    call.is_work = _is_work(counts, prompt, answer, status)
    call.cached, call.written = cached or 0, written or 0
    if not call.is_work:
        return call
    if prompt is None and answer is None:
        counts["calls without tokens"] += 1
    elif not prompt:
        counts["calls without a prompt"] += 1
    elif not answer:
        counts["calls without an answer"] += 1
    if new is not None:
        call.new_tokens = min(new, call.input_tokens)
        if cached is not None and cached + new != call.input_tokens:
            counts["calls whose cached and new tokens are not their prompt"] += 1
    elif call.cached + call.written > call.input_tokens:
        count_beside(call, counts)
    else:
        call.new_tokens -= call.cached
    sums = (prompt or 0) + (answer or 0), call.input_tokens + call.output_tokens
    if total is not None and total not in sums:
        counts["calls whose total is not that of prompt and answer"] += 1
    return call


def count_beside(call: Call, counts: Counter[str]) -> None:
    """Take what a call read from a cache and wrote to it as beside its prompt."""
    counts["calls whose cached tokens are counted beside the prompt"] += 1
    call.new_tokens = call.input_tokens + call.written
    call.input_tokens = call.new_tokens + call.cached
    call.is_beside = True


def _is_work(counts: Counter[str], prompt: int | None, answer: int | None, status: Iterable[Any]) -> bool:
    outcomes = {str(each): has_failed(each) for each in status}
    if True in outcomes.values():
        counts["calls that failed during an answer, kept" if answer else "calls that failed, left out"] += 1
        return bool(answer)
    for name, outcome in outcomes.items():
        if outcome is None:
            counts[f"calls of status {name:.40}, kept"] += 1
    if (prompt, answer) == (0, 0):
        counts["calls of 0 tokens, left out"] += 1
        return False
    return True


def in_time(entries: Sequence[T], begins: Callable[[T], float], counts: Counter[str], what: str) -> list[T]:
    """Entries of a record in the order of their times; those that stood elsewhere are counted."""
    ordered = sorted(entries, key=begins)
    counts[f"{what} out of the order of time, sorted"] += sum(
        entry is not other for entry, other in zip(entries, ordered, strict=True)
    )
    return ordered


def unit_s(times: Iterable[float]) -> float:
    """The unit of most of these times since 1970 [s]: of s, ms, us and ns the one in which they are dates of today."""
    found = Counter(unit for time in times for unit in UNITS_S if DATED_S[0] <= time * unit <= DATED_S[1])
    return found.most_common(1)[0][0] if found else UNITS_S[0]
