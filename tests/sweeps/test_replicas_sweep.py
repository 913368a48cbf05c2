"""A whole sweep whose servers are replicas of a language model: it trains, evaluates and reports as every other."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("ray")

from local_ray import LOCAL_RAY
from rllib_scale.results.columns import REPLICA_COLUMNS
from sweep_runs import episodes, epochs, features, refused, succeed

pytestmark = LOCAL_RAY
ENV = """
scenario: agents-replicas
env:
  cluster: {servers: 3}
  service: {sessions: 5, warm_up_s: 20.0, spread_s: 20.0}
  episode: {horizon_s: 120.0, mask: feasible}
"""
SESSIONS = [name for name in REPLICA_COLUMNS if name.startswith("session_")]
"""In so short a time no session may end."""
SWEEP = f"""
name: fleets
methods: [scale, crossattn]
{ENV}
srr: {{lambda_decorrelation: 0.02, lambda_kl: 0.003, ramp_start_epoch: 0, ramp_epochs: 1}}
algorithm: {{epochs: 2, steps_per_epoch: 64, minibatch_size: 32, passes: 1, reward_unit: 100.0}}
evaluation: {{scales: [3, 5], episodes: 2, heuristics: ["lmetric:gate=1", session-affinity]}}
"""


def test_scale_and_crossattn_train_and_are_compared_with_the_rules_of_the_field(tmp_path: Path) -> None:
    out, file = tmp_path / "out", tmp_path / "fleets.yaml"
    file.write_text(SWEEP, encoding="utf-8")
    printed = succeed("sweep", file, "--results", out)
    rows = episodes(out)
    assert set(rows["method"]) == {"scale", "crossattn", "lmetric:gate=1", "session-affinity"}
    assert len(rows) == 4 * 2 * 2
    assert rows["problem"].nunique() == 2, "one at each number of replicas, for all methods"
    assert rows[list(REPLICA_COLUMNS)].drop(columns=SESSIONS).notna().all(axis=None)
    assert (rows["ttft_median_s"] <= rows["ttft_p99_s"]).all()
    assert rows["hit_rate"].between(0.2, 1).all()
    assert (rows["decisions"] >= rows["completed"]).all()
    assert epochs(out, by="method") == {"crossattn": [1, 2], "scale": [1, 2]}
    assert features(out)["feature_rows"].gt(0).all()
    assert "lmetric:gate=1" in printed
    report = (out / "report" / "report.html").read_text(encoding="utf-8")
    assert "hit rate" in report
    assert "time to first token" in report


@pytest.mark.parametrize(
    ("trained", "evaluated", "services"),
    [("agents-replicas", "steady-0.7", ("fixed", "replica")), ("steady-0.7", "agents-replicas", ("replica", "fixed"))],
)
def test_a_method_is_not_planned_on_the_other_service(
    tmp_path: Path, trained: str, evaluated: str, services: tuple[str, str]
) -> None:
    file = tmp_path / "other.yaml"
    file.write_text(
        f"name: other\nscenario: {trained}\nmethods: [scale]\n"
        f"evaluation: {{scales: [4], scenarios: [train, {evaluated}]}}\n",
        encoding="utf-8",
    )
    there, own = services
    line = refused("validate", file)
    assert f"evaluation.scenarios {evaluated}: has service {there}" in line
    assert f"method scale is trained on {trained}, with service {own}" in line


def test_what_cannot_play_replicas_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    def line(methods: str, rule: str) -> str:
        file = tmp_path / "no.yaml"
        evaluation = f"evaluation: {{scales: [3], heuristics: ['{rule}']}}"
        file.write_text(f"name: refused\nmethods: [{methods}]\n{ENV}\n{evaluation}", encoding="utf-8")
        return refused("validate", file)

    assert "fastest-idle: decides on service fixed; valid here: " in line("scale", "fastest-idle")
    assert "env.service replica: decima trained by reinforce does not decide call by call" in line("decima", "lmetric")
    assert "gates" in line("scale", "lmetric:gates=1")
