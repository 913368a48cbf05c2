"""Bad input from a generator: exit code 2, one line of at most 300 characters that says where, never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from networks.observations import random_network
from rllib_scale.cli import main
from rllib_scale.config import TrialConfig
from rllib_scale.config.sweep import SweepConfig
from rllib_scale.config.yaml_files import build_model
from rllib_scale.policies.policy import save_policy

pytestmark = pytest.mark.slow

EACH = 125
"""Of each kind."""
WORDS = st.text(alphabet="abcdefghijklmnopqrstuvwxyz-_.:", min_size=1, max_size=400).map(lambda text: f"zz{text}zz")
VALUES = st.one_of(
    WORDS,
    st.sampled_from([None, True, False, -1, 0, -0.5, 1e400, -1e400, 1e-320, 10**30, [], {}, [[]], {"a": 1}, "", "\n"]),
    st.integers(max_value=-1),
    st.floats(max_value=-1e-300) | st.just(float("nan")),
    st.lists(st.integers(-5, -1), min_size=1, max_size=3),
)
SWEEP: dict[str, Any] = {
    "name": "bad",
    "methods": ["scale", "crossattn"],
    "grid": {"srr.lambda_kl": [0, 0.1]},
    "training": {"problems": {"servers": [8]}},
    "evaluation": {"scales": [4], "episodes": 1, "heuristics": ["reserve:waiting=2"], "scenarios": ["paper"]},
}
TASK = {"compute_gflop": 4.0, "memory_gb": 2.0, "output_gb": 0.5}
WORKFLOW = {"arrival_s": 0.5, "tasks": [TASK, TASK], "edges": [[0, 1]]}
WORKLOAD = {"format": "rllib-scale-workload", "version": 1, "workflows": [WORKFLOW, WORKFLOW]}


def paths_of(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Of every value below the root of a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [found for key, value in items for found in ((*path, key), *paths_of(value, (*path, key)))]


@st.composite
def damaged(draw: Callable[..., Any], tree: Any) -> tuple[str, Any]:
    """A tree with one value replaced or taken away, or a key too much; and the key."""
    tree = json.loads(json.dumps(tree))
    *parents, last = draw(st.sampled_from(paths_of(tree)))
    place = tree
    for key in parents:
        place = place[key]
    how = draw(st.sampled_from(["replace", "replace", "replace", "add", "take"]))
    if how == "replace" or isinstance(place, list):
        place[last] = draw(VALUES)
    elif how == "add":
        last = draw(WORDS)
        place[last] = draw(VALUES)
    else:
        del place[last]
    return str(last), tree


def refused(arguments: list[str]) -> str | None:
    """The line that refuses a command; None where it is done."""
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code in (0, 2), (arguments, done.output, repr(done.exception))
    if done.exit_code == 0:
        return None
    lines = done.stderr.splitlines()
    assert len(lines) == 1, (arguments, lines)
    assert len(lines[0]) <= 300, (arguments, len(lines[0]), lines[0])
    assert "Traceback" not in lines[0]
    return lines[0]


def check(inputs: st.SearchStrategy[Any], refuse: Callable[[Any], str | None]) -> None:
    """Draw until EACH distinct inputs were refused, or fail; `refuse` plays one."""
    seen: set[str] = set()

    @settings(
        max_examples=4 * EACH,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs)
    def play(drawn: Any) -> None:
        if len(seen) < EACH and refuse(drawn) is not None:
            seen.add(repr(drawn))

    play()
    assert len(seen) >= EACH


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_yaml_of_a_sweep(folder: Path) -> None:
    whole = build_model(SweepConfig, SWEEP, "sweep").model_dump(mode="json")

    def refuse(drawn: tuple[str, Any]) -> str | None:
        (folder / "bad.yaml").write_text(yaml.safe_dump(drawn[1]))
        line = refused(["validate", "bad.yaml"])
        if line is not None:
            key = drawn[0]
            assert line.startswith("Error: bad.yaml"), line
            assert key in line or key.isdigit() or len(key) > 40, (key, line)  # an entry of a list; what is cut
        return line

    assert refuse(("", SWEEP)) is None, "what is not damaged is done"
    check(st.one_of(damaged(SWEEP), damaged(whole)), refuse)


def test_files_of_workloads(folder: Path) -> None:
    def refuse(drawn: tuple[str, Any]) -> str | None:
        (folder / "bad.json").write_text(json.dumps(drawn[1]))
        line = refused(["evaluate", "fastest-idle", "--scales", "4", "--workload", "bad.json"])
        assert line is None or line.startswith("Error: bad.json"), line
        return line

    assert refuse(("", WORKLOAD)) is None, "what is not damaged is done"
    check(damaged(WORKLOAD), refuse)


def test_files_of_policies(folder: Path) -> None:
    save_policy(folder / "policy", random_network(), TrialConfig(), epochs=1)
    path = folder / "policy" / "policy.json"
    whole = json.loads(path.read_text())

    def refuse(drawn: tuple[str, Any]) -> str | None:
        path.write_text(json.dumps(drawn[1]))
        line = refused(["evaluate", "policy", "--scales", "4", "--episodes", "1"])
        assert line is None or line.startswith("Error: policy: policy."), line
        return line

    assert refuse(("", whole)) is None, "what is not damaged is done"
    check(damaged(whole), refuse)
