"""Hashes of blocks in a trace become the prefixes that calls share."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from rllib_scale.config import EnvConfig
from rllib_scale.config.replicas import ServiceConfig
from rllib_scale.config.workload import SplitConfig
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import play
from rllib_scale.policies.make import make_policy
from rllib_scale.simulator.replicas.scripts import read_scripts
from rllib_scale.simulator.replicas.state import NONE
from rllib_scale.workloads.formats.registry import FORMATS
from rllib_scale.workloads.traces import trained_on
from workloads.trace_samples import kv_session, request, write_lines

Lines = list[dict[str, Any]]


def asked(at_s: float, hashes: list[int], tokens: int, output: int = 1) -> dict[str, Any]:
    return {"timestamp": 1000 * at_s, "input_length": tokens, "output_length": output, "hash_ids": hashes}


def one_replica(path: Path, lines: Lines, end_s: float = 1e5, kv_tokens: int = 10**6, **service: Any) -> Any:
    """Calls in the order in which they were admitted, on one replica that plays requests as they were recorded."""
    of = {"name": "replica", "trace": str(write_lines(path, *lines)), "format": "mooncake", "part": "all"}
    env = EnvConfig.model_validate(
        {
            "cluster": {"tiers": [{"name": "pod", "count": 1, "replica": {"kv_tokens": kv_tokens}}]},
            "service": of | {"arrivals_per_s": "recorded", "warm_up_s": 0.0} | service,
            "episode": {"horizon_s": end_s},
            "reward": {"name": "tasks-in-system"},
        }
    )
    calls = play(make_policy("lmetric", env), env, 0, [0]).calls()
    return calls[np.argsort(calls["admitted_s"], kind="stable")]


def test_prefixes_end_where_prompts_part(tmp_path: Path) -> None:
    """Blocks 1 2 3 4 and 1 2 5, both twice, and 1 2 3 4 6, 7 once; the last block of a prompt is not full."""
    lines = [
        asked(0, [1, 2, 3, 4, 90], 2100),
        asked(1, [1, 2, 5, 91], 1800),
        asked(2, [1, 2, 3, 4, 6, 92], 2700),
        asked(3, [1, 2, 5, 93], 1900),
        asked(4, [7, 94], 600),
    ]
    scripts = read_scripts([write_lines(tmp_path / "t.jsonl", *lines)], ServiceConfig(format="mooncake"))
    long, short = scripts.tasks["prefix"][:2].tolist()
    root = int(scripts.tree["above"][long])
    assert scripts.tasks["prefix"].tolist() == [long, short, long, short, NONE]
    assert scripts.tasks["prefix_tokens"].tolist() == [2048, 1536, 2048, 1536, 0]
    assert scripts.tree["above"][[long, short, root]].tolist() == [root, root, NONE]
    assert scripts.tree["before"][[long, short, root]].tolist() == [1024, 1024, 0]
    found = one_replica(tmp_path / "t.jsonl", lines)
    assert found["hit"].tolist() == [0, 1024, 2048, 1536, 0]
    short = [line | {"input_length": line["input_length"] // 32} for line in lines]
    assert one_replica(tmp_path / "t.jsonl", short, block_size=16)["hit"].tolist() == [0, 32, 64, 48, 0]
    with pytest.raises(UserError, match=r"5 of 5 prompts have more or fewer hashes .* block_size must be about 15"):
        one_replica(tmp_path / "short.jsonl", short)


def made(rng: np.random.Generator, requests: int) -> Lines:
    """Requests that go on from any block of an earlier one."""
    chains, lines, fresh = [[0]], Lines(), iter(range(1, 10**6))
    for number in range(requests):
        before = chains[rng.integers(len(chains))]
        kept = before[: 1 + rng.integers(len(before))]
        chains.append(kept + [next(fresh) for _ in range(rng.integers(0, 5))])
        tokens = 512 * len(chains[-1]) + int(rng.integers(1, 512))
        lines.append(asked(100.0 * number, [*chains[-1], 10**7 + number], tokens, int(rng.integers(1, 40))))
    return lines


@pytest.mark.parametrize("seed", range(3))
def test_without_eviction_a_call_hits_every_block_that_came_before(tmp_path: Path, seed: int) -> None:
    lines, seen, hits = made(np.random.default_rng(seed), 60), set[int](), []
    for line in lines:
        whole = line["hash_ids"][:-1]
        hits.append(512 * sum(block in seen for block in whole))
        seen.update(whole)
    assert one_replica(tmp_path / "t.jsonl", lines)["hit"].tolist() == hits
    assert sum(hits) > 50 * 512
    short = one_replica(tmp_path / "t.jsonl", lines, kv_tokens=16_000)
    assert 0 < short["hit"].sum() < sum(hits)
    assert (short["hit"] <= hits).all()


def test_ids_of_a_session_are_its_own_and_show_where_a_context_was_cut(tmp_path: Path) -> None:
    def session(name: str, scope: str) -> dict[str, Any]:
        prompts = [(300, [1, 2, 3, 4]), (400, [1, 2, 3, 4, 5, 6]), (450, [1, 2, 7, 8, 9, 10, 11])]
        calls = [request(10.0 * number, prompt, 20, hash_ids=hashes) for number, (prompt, hashes) in enumerate(prompts)]
        return kv_session(*calls) | {"id": name, "hash_id_scope": scope}

    for scope, shared in (("local", [0, 0, 0]), ("global", [256, 384, 448])):
        path = write_lines(tmp_path / "t.jsonl", session("a", scope), session("b", scope))
        tasks = read_scripts([path]).tasks[:3]
        assert tasks["reusable"].tolist() == [0, 320, 128], "a prompt and its answer; two blocks of the other"
        assert tasks["prefix_tokens"].tolist() == shared


def test_every_format_of_sessions_can_be_played() -> None:
    names = get_args(ServiceConfig.model_fields["format"].annotation)
    assert set(names) == {name for name, each in FORMATS.items() if each.collect is not None}


@pytest.mark.parametrize(
    ("service", "message"),
    [
        ({"format": "kv-cache-tester"}, "kv-cache-tester has no common clock of its sessions"),
        ({"format": "copilot"}, "turns: field required"),
        ({"format": "tracelab", "block_size": 16}, "block_size 16: not with format tracelab"),
    ],
)
def test_what_a_format_cannot_do_is_refused(tmp_path: Path, service: dict[str, Any], message: str) -> None:
    lines = [kv_session(request(0.0, 100, 10)) | {"id": name} for name in "ab"]
    with pytest.raises((UserError, ValueError), match=message):
        one_replica(tmp_path / "t.jsonl", lines, **service)


def test_recorded_arrivals_are_those_of_the_part_that_is_played(tmp_path: Path) -> None:
    lines = [asked(at_s, [1], 600) for at_s in (0, 100, 200, 300)]
    first, other = ("train", "test") if trained_on(np.arange(1), SplitConfig())[0] else ("test", "train")
    at_s = [one_replica(tmp_path / "t.jsonl", lines, part=part)["asked_s"].tolist() for part in (first, other)]
    assert at_s[0][0] == 0.0
    assert sorted(at_s[0] + at_s[1]) == [0.0, 100.0, 200.0, 300.0]
    with pytest.raises(UserError, match="horizon_s 50: no recorded session begins before it"):
        one_replica(tmp_path / "t.jsonl", lines, end_s=50.0, part=other)
