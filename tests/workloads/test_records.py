"""Records of traces that are doubled, nested, shuffled, failed or wrong: all is as before, or is counted."""

from __future__ import annotations

import copy
import gzip
import json
import random
import secrets
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rllib_scale.errors import UserError
from rllib_scale.workloads.formats.base import Progress
from rllib_scale.workloads.formats.registry import find_format
from workloads.mutations import WRONG
from workloads.test_wfformat import instance
from workloads.trace_samples import (
    copilot_call,
    dynamo_request,
    kv_session,
    message,
    otel_span,
    request,
    subagent,
    tracelab_round,
    write_lines,
)

Records = list[Any]
BASE_S = 1_777_312_800
SIZES = {"sessions", "turns", "calls", "subagents", "input tokens", "new input tokens", "output tokens", "workflows"}
"""Counts of what was read, which say nothing odd."""


def tokens(rng: random.Random, before: int = 0) -> tuple[int, int]:
    return before + rng.randrange(1, 3000), rng.randrange(1, 400)


def clock(at_s: float) -> str:
    return f"{10 + int(at_s) // 3600:02}:{int(at_s) // 60 % 60:02}:{at_s % 60:06.3f}"


# ---------------------------------------------------------------------- valid files, with distinct times


def kv(rng: random.Random, name: str) -> Records:
    at_s, prompt, requests = 0.0, 0, Records()
    for number in range(rng.randrange(2, 5)):
        prompt, answer = tokens(rng, prompt)
        requests.append(request(at_s, prompt, answer, 2.5, rng.choice(["tool_use", "end_turn"])))
        at_s += rng.randrange(5, 50)
        if rng.random() < 0.3:
            requests.append(subagent(at_s, 4000, request(0.0, *tokens(rng), 2.0)) | {"agent_id": f"{name} {number}"})
            at_s += rng.randrange(5, 50)
    return [kv_session(*requests) | {"id": name}]


def copilot(rng: random.Random, name: str) -> Records:
    at_s, prompt, turns = rng.randrange(1, 1000) + rng.random(), 0, Records()
    for turn in range(rng.randrange(1, 3)):
        calls = Records()
        for _ in range(rng.randrange(1, 4)):
            cached, (prompt, answer) = prompt, tokens(rng, prompt)
            calls.append(copilot_call(clock(at_s), 1500.0, prompt, answer, cached))
            at_s += rng.randrange(5, 50)
        turns.append({"turn_id": turn, "llm_calls": calls})
    return [{"session_id": name, "turns": turns}]


def tracelab(rng: random.Random, name: str) -> Records:
    at_s, prompt, rounds = rng.randrange(1, 1000) + rng.random(), 0, Records()
    for number in range(rng.randrange(1, 5)):
        cached, (prompt, answer) = prompt, tokens(rng, prompt)
        events = (rng.choice(["user_message", "tool_result"]), clock(at_s)), ("text", clock(at_s + 2))
        rounds.append(tracelab_round(name, prompt, prompt - cached, answer, *events) | {"round_id": number})
        at_s += rng.randrange(5, 50)
    return rounds


def mooncake(rng: random.Random, name: str) -> Records:
    lines, ms = Records(), rng.randrange(10**6)
    for _ in range(rng.randrange(1, 4)):
        prompt, answer = tokens(rng)
        hashes = [10 * block + rng.randrange(2) for block in range(-(-prompt // 512))]
        line = {"timestamp": ms, "input_length": prompt, "output_length": answer, "hash_ids": hashes}
        lines.append(line | {"session_id": name})
        ms += rng.randrange(10**5, 10**6)
    return lines


def dynamo(rng: random.Random, name: str) -> Records:
    ms, prompt, events = BASE_S * 1000 + rng.randrange(10**6), 0, Records()
    for number in range(rng.randrange(1, 5)):
        prompt, answer = tokens(rng, prompt)
        replay = {"trace_block_size": 64, "input_length": prompt}
        replay |= {"input_sequence_hashes": [rng.randrange(2) for _ in range(-(-prompt // 64))]}
        who = {"agent": f"{name} sub", "parent": name} if number and rng.random() < 0.3 else {}
        reason = {"finish_reason_metadata": {"finish_reason": rng.choice(["stop", "tool_calls"])}}
        more: dict[str, Any] = {"request_id": f"{name} {number}", "output_tokens": answer} | who | reason
        more |= {"cached_tokens": rng.randrange(prompt)} if rng.random() < 0.5 else {"replay": replay}
        events.append(dynamo_request(name, ms, rng.randrange(500, 3000), prompt, **more))
        ms += rng.randrange(4000, 50_000)
    return events


def otel(rng: random.Random, name: str) -> Records:
    at_s, prompt, spans = rng.randrange(1000), 0, [otel_span(name, "agent", None, "invoke_agent", 0, 9000)]
    for number in range(rng.randrange(1, 5)):
        cached, (prompt, answer) = prompt, tokens(rng, prompt)
        usage: dict[str, Any] = {"input_tokens": prompt, "output_tokens": answer, "cache_read.input_tokens": cached}
        spans.append(otel_span(name, f"s{number}", "agent", "chat", at_s, at_s + 3, **usage))
        at_s += rng.randrange(5, 50)
    return [{"spans": [span]} for span in spans]


def scaffolding(rng: random.Random, name: str) -> Records:
    prompt, events = 0, [message("user")]
    for _ in range(rng.randrange(1, 4)):
        prompt, answer = tokens(rng, prompt)
        events.append(message("assistant") | {"prompt_tokens": prompt, "completion_tokens": answer})
        if rng.random() < 0.5:
            events.append({"event_type": "tool_call", "branch_path": [], "duration_ms": rng.randrange(1, 900)})
    return [{"trace_id": name, "events": events}]


def wfformat(rng: random.Random, name: str) -> Records:
    made = instance(name=name)
    made["workflow"]["execution"]["tasks"][1]["runtimeInSeconds"] = rng.randrange(2, 99)
    return [made]


SOURCES: dict[str, Callable[[random.Random, str], Records]] = {
    "kv-cache-tester": kv,
    "copilot": copilot,
    "tracelab": tracelab,
    "mooncake": mooncake,
    "dynamo": dynamo,
    "otel": otel,
    "scaffolding": scaffolding,
    "wfformat": wfformat,
}
CALLS = {
    "kv-cache-tester": ("requests",),
    "copilot": ("turns", 0, "llm_calls"),
    "otel": ("spans",),
    "scaffolding": ("events",),
}
"""Where a record has a list of calls."""
IN_TIME = {"kv-cache-tester": ("requests", "t"), "copilot": ("turns", "turn_id")}
"""Where a record has a list whose entries have times, and a key whose values differ among them."""
WITHOUT_IDS = {
    "mooncake": "requests the same as an earlier one, kept",
    "wfformat": "workflows the same as an earlier one, kept",
    "kv-cache-tester": "requests the same as an earlier one, kept",
    "scaffolding": "answers the same as an earlier one, kept",
}
"""What is counted of records, or of the calls of a record, that have no id."""


def made(rng: random.Random, name: str) -> Records:
    return [record for number in range(3) for record in SOURCES[name](rng, f"{name}-{number}")]


# ---------------------------------------------------------------------- what is read of them


class Read:
    """What is read of files: the work and context of each task, sorted, and odd counts."""

    def __init__(self, name: str, *sources: Path, skip_bad: bool = False) -> None:
        found, self.said = find_format(name), list[str]()
        progress = Progress(say=self.said.append, skip_bad=skip_bad)
        workload = found.read(list(sources), found.mapping(), progress)
        columns = workload.compute_gflop, workload.memory_gb, workload.output_gb
        self.tasks = Counter(zip(*(column.round(9).tolist() for column in columns), strict=True))
        self.odd = Counter({what: count for what, count in progress.counts.items() if count and what not in SIZES})
        self.skipped = progress.skipped

    def news(self, before: Read) -> Counter[str]:
        """Odd counts that were not there before."""
        return self.odd - before.odd


def lines_of(records: Records, path: Path) -> Path:
    return write_lines(path, *records)


def calls_of(record: Any, name: str) -> Records | None:
    """The list of calls within a record, if it has one."""
    at = record
    for key in CALLS.get(name, ()):
        at = at[key]
    return at if name in CALLS else None


def check_doubled(rng: random.Random, name: str, records: Records, before: Read, path: Path) -> None:
    """A record that has an id counts once, and what has none is counted as the same."""
    again = rng.sample(records, k=rng.randrange(1, len(records) + 1))
    places = sorted((rng.randrange(len(records) + 1) for _ in again), reverse=True)
    doubled = list(records)
    for place, record in zip(places, again, strict=True):
        doubled.insert(place, record)
    found = Read(name, lines_of(doubled, path))
    if name in ("mooncake", "wfformat"):
        assert found.news(before)[WITHOUT_IDS[name]] == len(again)
    else:
        assert found.tasks == before.tasks
        assert sum(count for what, count in found.news(before).items() if "read before" in what) >= len(again)


def check_doubled_within(rng: random.Random, name: str, records: Records, before: Read, path: Path) -> None:
    """The same of a call within a record."""
    doubled = copy.deepcopy(records)
    of = calls_of(rng.choice(doubled), name)
    if of is None:
        return
    number = rng.randrange(len(of))
    of.insert(number, of[number])
    found = Read(name, lines_of(doubled, path))
    assert found.tasks == before.tasks or found.news(before)[WITHOUT_IDS[name]] == 1


def check_second_file(rng: random.Random, name: str, records: Records, before: Read, path: Path) -> None:
    lines_of(records, path)
    zipped = path.with_name("other.jsonl.gz")
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    found = Read(name, path.parent)
    assert found.tasks == before.tasks
    assert found.news(before) == {"files with the content of another one, left out": 1}
    zipped.unlink()


def check_list(rng: random.Random, name: str, records: Records, before: Read, path: Path) -> None:
    """A list of records, records over several lines, and both in a file that is read as a whole."""
    pretty = "\n".join(json.dumps(record, indent=4) for record in records)
    whole = path.with_suffix(".json")
    for at, text in (
        (path, json.dumps(records)),
        (path, f"{pretty}\n"),
        (whole, json.dumps(records)),
        (whole, pretty),
    ):
        at.write_text(text)
        found = Read(name, at)
        assert (found.tasks, found.odd) == (before.tasks, before.odd)
    whole.unlink()


def check_shuffled(rng: random.Random, name: str, records: Records, before: Read, path: Path) -> None:
    found = Read(name, lines_of(rng.sample(records, len(records)), path))
    assert (found.tasks, found.news(before)) == (before.tasks, {})


def check_shuffled_within(rng: random.Random, name: str, records: Records, before: Read, path: Path) -> None:
    """The same of a list within a record whose entries have times; that they stood elsewhere is counted."""
    if name not in IN_TIME:
        return
    (key, called), shuffled, moved = IN_TIME[name], copy.deepcopy(records), 0
    for record in shuffled:
        were = [entry[called] for entry in record[key]]
        rng.shuffle(record[key])
        moved += sum(entry[called] != was for entry, was in zip(record[key], were, strict=True))
    found = Read(name, lines_of(shuffled, path))
    assert found.tasks == before.tasks
    assert found.news(before) == ({f"{key} out of the order of time, sorted": moved} if moved else {})


def failed(rng: random.Random, name: str, record: Any) -> Any:
    """A record of the same, with another id, that failed or was refused."""
    zero, other = rng.random() < 0.5, copy.deepcopy(record)
    if name == "kv-cache-tester":
        other["requests"] = [request(0.0, 0, 0, 1.0)]
        other["id"] += " failed"
    elif name == "copilot":
        other["session_id"] += " failed"
        for call in (call for turn in other["turns"] for call in turn["llm_calls"]):
            call["tokens"] |= {"total": 0, "completion": 0} | ({"prompt": 0, "cached": 0} if zero else {})
            call |= (
                {} if zero else rng.choice([{"result": "Failure"}, {"status_code": 429}, {"status_code": "Canceled"}])
            )
    elif name == "tracelab":
        other |= {"input_tokens_total": 0, "newly_append_tokens": 0, "prefix_tokens": 0, "output_tokens": 0}
        other["round_id"] += 100
    elif name == "mooncake":
        other |= {"input_length": 0, "output_length": 0, "hash_ids": []}
    elif name == "dynamo":
        of = other["request"]
        of["request_id"] += " failed"
        of["output_tokens"] = 0
        if zero:
            of |= {"input_tokens": 0, "cached_tokens": 0, "replay": None}
        else:
            of["finish_reason_metadata"] = {"finish_reason": rng.choice(["error", "cancelled"])}
    elif name == "otel":
        (span,) = other["spans"]
        span["spanId"] += " failed"
        status = rng.choice([{"code": 2}, {"code": "STATUS_CODE_ERROR"}, {"status_code": "ERROR"}])
        span |= {"status": status, "attributes": [each for each in span["attributes"] if "output" not in each["key"]]}
    elif name == "scaffolding":
        other |= {"trace_id": f"{other['trace_id']} failed"}
        for event in other["events"]:
            event |= {"prompt_tokens": 0, "completion_tokens": 0} if event.get("role") == "assistant" else {}
    return other


def check_failed(rng: random.Random, name: str, records: Records, before: Read, path: Path) -> None:
    """Calls that failed, or of 0 tokens, are no work, and are counted; they are no part of another call either."""
    if name == "wfformat":
        return
    calls = [record for record in records if name != "otel" or record["spans"][0]["spanId"] != "agent"]
    bad = [failed(rng, name, record) for record in rng.sample(calls, min(12, len(calls)))]
    mixed = rng.sample([*records, *bad], len(records) + len(bad))
    found = Read(name, lines_of(mixed, path))
    assert found.tasks == before.tasks
    left_out = sum(count for what, count in found.news(before).items() if what.endswith(", left out"))
    assert left_out >= len(bad)


def check_nested(rng: random.Random, name: str, records: Records, before: Read, path: Path) -> None:
    """A layer above or below a call that recorded it, too, with its tokens or with none."""
    if name != "otel":
        return
    chosen = rng.choice([record["spans"][0] for record in records if record["spans"][0]["spanId"] != "agent"])
    layer = copy.deepcopy(chosen) | {"spanId": "layer"}
    nested = copy.deepcopy(records)
    if rng.random() < 0.5:
        layer["parentSpanId"] = chosen["spanId"]
    else:
        for record in nested:
            if (record["spans"][0]["traceId"], record["spans"][0]["spanId"]) == (chosen["traceId"], chosen["spanId"]):
                record["spans"][0]["parentSpanId"] = "layer"
    if "parentSpanId" in layer and layer["parentSpanId"] == "agent" and rng.random() < 0.3:
        layer["attributes"] = layer["attributes"][:1]
    nested.insert(rng.randrange(len(nested) + 1), {"spans": [layer]})
    found = Read(name, lines_of(nested, path))
    assert found.tasks == before.tasks
    assert found.news(before)["calls that a layer above recorded, too"] == 1


def check_corrupted(rng: random.Random, name: str, records: Records, before: Read, path: Path) -> None:
    """A wrong value is refused, counted or does not matter; what is skipped is said, and all else is as before."""
    bad = copy.deepcopy(records)
    at: Any = bad
    while isinstance(at, dict | list) and at:
        place, key = at, rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
        at = place[key]
    print(key, at, "->", value := rng.choice(WRONG))
    place[key] = value
    refusal = refusal_of(lambda: Read(name, lines_of(bad, path)))
    if refusal is None:
        found = Read(name, path)
        assert contexts_of(found) == contexts_of(before) or found.odd != before.odd
        return
    assert refusal.startswith(f"{path}")
    assert "\n" not in refusal
    if refusal_of(lambda: Read(name, path, skip_bad=True)) is None:  # else there is nothing that can be skipped
        found = Read(name, path, skip_bad=True)
        skipped = [line for line in found.said if line.startswith("skipped: ")]
        assert len(skipped) == found.skipped > 0
        assert skipped[0].startswith(f"skipped: {refusal}")
        assert not contexts_of(found) - contexts_of(before), "what is left is as it was"


def contexts_of(read: Read) -> Counter[float]:
    return Counter(memory for _, memory, _ in read.tasks.elements())


def refusal_of(play: Callable[[], object]) -> str | None:
    try:
        play()
    except UserError as error:
        return str(error)
    return None


CHECKS = [
    check_doubled,
    check_doubled_within,
    check_second_file,
    check_list,
    check_shuffled,
    check_shuffled_within,
    check_failed,
    check_nested,
    check_corrupted,
]


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("examples", [2, pytest.param(150, marks=pytest.mark.slow)])
def test_records_count_once_and_as_what_they_are(examples: int, name: str, tmp_path: Path) -> None:
    for _ in range(examples):
        seed = secrets.randbits(32)
        print(f"seed {seed}")
        rng = random.Random(seed)
        records = made(rng, name)
        path = tmp_path / "source.jsonl"
        before = Read(name, lines_of(records, path))
        assert before.tasks
        for check in CHECKS:
            print(check.__name__)
            check(rng, name, records, before, path)
