"""What docs/workloads.md shows is a sweep, and what it says about tiers and units is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rllib_scale.config import scenario
from rllib_scale.config.cluster import ClusterConfig
from rllib_scale.config.plan import SweepConfig, evaluation_units, expand
from rllib_scale.config.yaml_files import load_model
from workloads.made_trace import made_trace

TEXT = (Path(__file__).parents[2] / "docs" / "workloads.md").read_text(encoding="utf-8")


def test_the_sweep_trains_on_one_part_and_evaluates_on_the_other(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", TEXT, flags=re.DOTALL)
    made_trace().save(tmp_path / "trace.json")
    (tmp_path / "traced.yaml").write_text(block)
    sweep = load_model(SweepConfig, tmp_path / "traced.yaml")
    (cell,) = expand(sweep, "docs")
    assert cell.trial.env.workload.trace.part == "train"
    units = evaluation_units(sweep, [cell])
    assert {unit.env.workload.trace.part for unit in units} == {"test"}
    assert {unit.env.cluster.num_servers for unit in units} == {16, 64}


def test_the_table_of_tiers() -> None:
    rows = re.findall(r"^\| (l40s|a100|h100|h100x4) \|(.*)\|$", TEXT, flags=re.MULTILINE)
    found = [(name, *re.findall(r"[\d.]+", row)) for name, row in rows]
    tiers = ClusterConfig.model_validate("llm-16").tiers
    fields = ("count", "slots", "compute_gflops", "memory_gb", "idle_power_w", "busy_power_w")
    assert [(name, *map(float, row)) for name, *row in found] == [
        (tier.name, *(float(getattr(tier, field)) for field in fields)) for tier in tiers
    ]


@pytest.mark.parametrize("servers", [16, 32, 128, 1024])
def test_coding_agents_scale_with_the_cluster(servers: int) -> None:
    env = scenario("coding-agents-0.9").at_scale(servers)
    assert env.cluster.num_servers == servers
    assert [t.count / servers for t in env.cluster.tiers] == pytest.approx([6 / 16, 6 / 16, 3 / 16, 1 / 16])
    assert env.arrival_rate_of(100.0) == pytest.approx(0.9 * env.cluster.total_gflops / 100)
