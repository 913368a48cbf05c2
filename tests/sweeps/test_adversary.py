"""The search for the worst instance: what it writes is played to the same figures, however many play."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from local_ray import LOCAL_RAY
from rllib_scale.cli import main
from rllib_scale.config import scenario
from rllib_scale.errors import UserError
from rllib_scale.sweeps.adversary import RANGES, Adversary, problem_of

pytestmark = LOCAL_RAY
STEADY = scenario("steady-0.7")


def invoke(*arguments: str) -> dict[str, float]:
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, float] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("metric", "name"), [("response", "response_mean_s"), ("makespan", "makespan_mean_s")])
def test_simulate_plays_what_was_found_to_the_same_ratio(tmp_path: Path, metric: str, name: str) -> None:
    output = tmp_path / "worst.json"
    chosen = ["large-only", "--against", "reserve", "--scenario", "stragglers", "--mask", "none", "--metric", metric]
    found = invoke("adversary", *chosen, "--generations", "3", "--output", str(output))
    settings = str(tmp_path / "worst.yaml")
    played = [
        invoke("simulate", "--workload", str(output), "--config", settings, "--scheduler", rule)[name]
        for rule in ("large-only", "reserve")
    ]
    assert played == [found["scheduler"], found["against"]]
    assert found["ratio"] == played[0] / played[1]
    assert found["ratio"] > 1.2  # a rule that waits for few servers is easily embarrassed
    assert {path.name for path in tmp_path.iterdir()} == {"worst.json", "worst.yaml"}


def test_generations_give_the_same_however_many_play_and_the_best_only_grows() -> None:
    alone, spread = (Adversary("fastest-idle", "reserve", STEADY, "response", 5, remote) for remote in (0, 2))
    ratios = []
    for generation in range(5):
        assert alone.step(generation / 5) == spread.step(generation / 5)
        assert alone.best is not None
        assert spread.best is not None
        assert alone.best.ratio == spread.best.ratio
        assert alone.best.workload.equals(spread.best.workload)
        ratios.append(alone.best.ratio)
    assert ratios == sorted(ratios)
    assert ratios[-1] > ratios[0]
    other = Adversary("fastest-idle", "reserve", STEADY, "response", 6)
    other.step(0.0)
    assert other.best is not None
    assert other.best.ratio != ratios[0]


def test_every_point_is_a_problem_within_the_limits() -> None:
    size = len(RANGES) + 3
    rng = np.random.default_rng(0)
    for point in (np.zeros(size), np.ones(size), *rng.random((50, size))):
        env = problem_of(STEADY, point)
        assert 0.3 <= env.workload.offered_load <= 1.1  # type: ignore[operator]
        assert 1 <= env.workload.min_tasks <= env.workload.max_tasks <= 16
        assert all(1 <= tier.count <= 8 for tier in env.cluster.tiers)
        assert env.episode.mask == "feasible"


def test_a_search_that_is_broken_off_leaves_the_best_so_far(tmp_path: Path) -> None:
    output = tmp_path / "worst.json"
    search = Adversary("fastest-idle", "reserve", STEADY, "response", 5)
    lines: list[str] = []

    def interrupt(line: str) -> None:
        lines.append(line)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        search.run(None, 600.0, output, interrupt)
    assert len(lines) == 1
    assert search.best is not None
    assert f"{search.best.first!r} s" in (tmp_path / "worst.yaml").read_text()
    assert len(json.loads(output.read_text())["workflows"]) == search.best.workload.num_workflows
    assert yaml.safe_load((tmp_path / "worst.yaml").read_text())["episode"]["arrivals_until_s"] is None


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["fastest-idel", "--against", "reserve"], ["fastest-idel", "fastest-idle"]),
        (["heft", "--against", "reserve", "--scenario", "spot"], ["heft", "cluster.changes"]),
        (["reserve", "--against", "price", "--scenario", "coding-agents-0.7"], ["synthetic"]),
        (["reserve", "--against", "price", "--output", "worst.yaml"], ["--output worst.yaml", ".json"]),
        (["reserve", "--against", "price", "--minutes", "0"], ["--minutes"]),
        (["reserve"], ["--against"]),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], parts: list[str]) -> None:
    done = CliRunner().invoke(main, ["adversary", *arguments])
    assert done.exit_code == 2
    assert all(part in done.output for part in parts)
    assert not Path("worst.json").exists()


def test_who_never_finishes_is_no_worst_case() -> None:
    search = Adversary("reserve", "reserve", STEADY, "response", 0)
    search.step(0.0)
    assert search.best is not None
    assert search.best.ratio == 1.0
    with pytest.raises(UserError, match="no instance in 0 generations"):
        Adversary("reserve", "price", STEADY, "response", 0).run(1, 0.0, Path("never.json"))
