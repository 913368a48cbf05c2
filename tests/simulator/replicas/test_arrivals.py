"""Where sessions begin and how many are live, against the recorded file itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from fleets import fleet, played

from workloads.trace_samples import kv_session, request, write_lines

SESSIONS, CALLS = 30, 40


def recording(path: Path) -> tuple[str, list[list[int]]]:
    """A file of sessions, and the tokens of the prompts of each: no two calls have equally many."""
    prompts = [[10 * (CALLS * k + number + 1) for number in range(CALLS)] for k in range(SESSIONS)]
    sessions = [kv_session(*(request(10.0 * n, tokens, 20, 1.0) for n, tokens in enumerate(each))) for each in prompts]
    return str(write_lines(path, *(line | {"id": str(k)} for k, line in enumerate(sessions)))), prompts


def first_prompts(calls: pd.DataFrame) -> list[int]:
    """Tokens of the first prompt of each of the sessions that live first, by their number."""
    firsts = calls.sort_values("asked_s").groupby("session")["prompt"].first()
    return [int(tokens) for tokens in firsts]


def test_sessions_begin_at_their_first_call_or_anywhere_in_their_course(tmp_path: Path) -> None:
    file, prompts = recording(tmp_path / "sessions.jsonl")
    opening = {each[0] for each in prompts}

    def begun(**service: Any) -> list[int]:
        env = fleet(sessions=20, end_s=300.0, trace=file, spread_s=50.0, warm_up_s=0.0, **service)
        calls = played("session-affinity", env).calls
        return first_prompts(calls[calls["session"] < 60])  # 20 of each of three replicas

    first, anywhere = begun(start="first"), begun()
    assert len(first) == len(anywhere) == 60
    assert opening.issuperset(first)
    assert len({*first}) > 15, "any of the recorded sessions"
    place = {tokens: number for each in prompts for number, tokens in enumerate(each)}
    places = np.array([place[tokens] for tokens in anywhere])
    assert abs(places.mean() - (CALLS - 1) / 2) < 4 * CALLS / np.sqrt(12 * 60), "uniform over a session's calls"
    assert anywhere == begun(start="anywhere")


def test_live_sessions_are_those_of_a_replica_or_a_total_of_the_fleet(tmp_path: Path) -> None:
    file, _ = recording(tmp_path / "sessions.jsonl")
    for replicas, sessions, live in ((3, 4, 12), (3, {"total": 7}, 7), (5, {"total": 7}, 7), (5, {"total": 3}, 3)):
        of = {"trace": file, "spread_s": 50.0, "warm_up_s": 0.0, "start": "first"}
        env = fleet(sessions, replicas, end_s=200.0, **of)
        assert played("session-affinity", env).calls["session"].nunique() == live  # one lasts for 400 s
    assert env.at_scale(2).service.live(2) == 3
