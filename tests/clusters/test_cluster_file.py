"""The shipped cluster files, and the documented lines that need a cloud or hosts, as far as Ray checks them."""

from __future__ import annotations

import shlex
from typing import Any

import click
import pytest
import yaml
from loopback import DOCUMENT, ROOT, documented

from rllib_scale.cli import main

pytest.importorskip("jsonschema")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray's own
SHIPPED = ("cluster.yaml", "cluster-local.yaml")


def shipped(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / name).read_text()))


@pytest.mark.parametrize("name", SHIPPED)
def test_ray_accepts_a_shipped_file_and_no_node_is_open(name: str) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(shipped(name))
    validate_config(config)
    starts = [
        line
        for key in ("head_start_ray_commands", "worker_start_ray_commands")
        for line in config[key]
        if "ray start" in line
    ]
    assert len(starts) == 2
    assert all("RAY_AUTH_MODE=token" in line for line in starts)
    assert "--dashboard-host=127.0.0.1" in starts[0]
    for path in config["file_mounts"].values():
        assert path.startswith("~") or (ROOT / path).exists()


def test_the_cloud_cluster_starts_without_workers_and_takes_spot_machines() -> None:
    config = shipped("cluster.yaml")
    head, worker = (config["available_node_types"][name] for name in ("head", "worker"))
    assert head["resources"]["CPU"] == worker["min_workers"] == 0
    assert any("--num-cpus=0" in line for line in config["head_start_ray_commands"])
    assert worker["node_config"]["InstanceMarketOptions"]["MarketType"] == "spot"
    assert worker["max_workers"] <= config["max_workers"]
    assert config["idle_timeout_minutes"] > 0


def test_ray_and_this_program_accept_the_documented_lines_that_need_a_cloud_or_hosts() -> None:
    from ray.dashboard.modules.job.cli import job_cli_group
    from ray.scripts.scripts import cli as ray_cli

    lines = documented("On AWS") + documented("Hosts of your own, by `ray up`")
    assert {"ray up", "ray down", "ray job", "rllib-scale fetch"} <= {" ".join(line.split()[:2]) for line in lines}
    for line in lines:
        program, name, *words = shlex.split(line)
        group: Any = {"ray": ray_cli, "rllib-scale": main}[program]
        if name == "job":
            group, name, words = job_cli_group, words[0], words[1:]
        assert isinstance(group, click.Group)
        context = group.commands[name].make_context(name, words)
        if name == "submit":
            _, name, *words = context.params["entrypoint"]
            assert (ROOT / main.commands[name].make_context(name, words).params["file"]).is_file()


def test_the_document_says_what_never_ran() -> None:
    last = DOCUMENT.strip().split("\n\n")[-1]
    assert last.startswith("Never run against a real cloud: `cluster.yaml`")
    assert "`cluster-local.yaml`" in last
