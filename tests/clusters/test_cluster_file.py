"""`rllib-scale cluster check`: the files that are shipped pass, each thing that would go wrong is told in a line."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner
from loopback import DOCUMENT, ROOT, documented

from rllib_scale.cli import main
from rllib_scale.clusters.cluster_file import CHANGE_MARK, check_cluster_file
from rllib_scale.clusters.jobs import SweepJob
from rllib_scale.errors import UserError

pytestmark = pytest.mark.cluster
SHIPPED = ("cluster.yaml", "cluster-local.yaml")


def shipped(name: str = "cluster.yaml") -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / name).read_text()))


def check(folder: Path, data: dict[str, Any], *options: str) -> str:
    """What the command prints on the config, all in one; it is expected to refuse it in one line."""
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump(data))
    done = CliRunner().invoke(main, ["cluster", "check", str(file), *options])
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_file_passes_and_lists_what_to_change(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    done = CliRunner().invoke(main, ["cluster", "check", name, "--sweep", "tune_configs/table4.yaml"])
    assert done.exit_code == 0, done.output
    marked = [line for line in (ROOT / name).read_text().splitlines() if CHANGE_MARK in line]
    assert len(marked) >= 4
    assert [line for line in done.stdout.splitlines() if line.startswith("to change")] == [
        line for line in done.stdout.splitlines() if any(line.endswith(mark.strip()) for mark in marked)
    ]
    assert all(mark.split(CHANGE_MARK)[1].strip() for mark in marked)
    assert "a training needs 1 CPUs" in done.stdout


def test_the_shipped_cloud_cluster_is_what_it_is_said_to_be() -> None:
    config = shipped()
    head, worker = config["available_node_types"]["head"], config["available_node_types"]["worker"]
    assert config["provider"]["type"] == "aws"
    assert head["resources"]["CPU"] == 0
    assert worker["min_workers"] == 0
    assert worker["node_config"]["InstanceMarketOptions"]["MarketType"] == "spot"
    assert config["idle_timeout_minutes"] > 0
    assert any("--constraint constraints.txt" in command for command in config["setup_commands"])
    (start,) = (command for command in config["head_start_ray_commands"] if "ray start" in command)
    assert "--num-cpus=0" in start
    assert "--dashboard-host=127.0.0.1" in start
    for path in config["file_mounts"].values():
        assert path.startswith("~") or (ROOT / path).exists()


def test_what_ray_refuses_is_told_by_key(tmp_path: Path) -> None:
    assert "unknown key 'idle_minutes'" in check(tmp_path, shipped() | {"idle_minutes": 5})
    assert "max_workers: must be of type integer (got 'many')" in check(tmp_path, shipped() | {"max_workers": "many"})
    assert "head_node_type" in check(tmp_path, shipped() | {"head_node_type": "none"})
    without = shipped()
    del without["provider"]
    assert "'provider' is a required property" in check(tmp_path, without)
    assert "a mapping of keys to values is expected" in str(refusal(tmp_path, "- a list"))
    assert "head_ip" in check(tmp_path, {"cluster_name": "x", "provider": {"type": "local"}})
    assert "stands twice" in str(refusal(tmp_path, "cluster_name: a\ncluster_name: b\n"))


def refusal(folder: Path, text: str) -> UserError:
    file = folder / "cluster.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        list(check_cluster_file(file))
    return caught.value


def test_more_workers_of_a_type_than_in_all(tmp_path: Path) -> None:
    assert "worker.max_workers 8: more than the cluster's max_workers 4" in check(
        tmp_path, shipped() | {"max_workers": 4}
    )
    config = shipped()
    config["available_node_types"]["worker"] |= {"min_workers": 5, "max_workers": 4}
    assert "worker.min_workers 5: more than its max_workers 4" in check(tmp_path, config)


def test_a_worker_too_small_for_one_training_of_the_sweep(tmp_path: Path) -> None:
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text("name: wide\nmethods: [scale]\nresources: {env_runners: 16}\n")
    line = check(tmp_path, shipped(), "--sweep", str(sweep))
    assert "needs 17 CPUs for a training (1 for its learner and 16 for its environment runners)" in line
    assert "worker, has 16" in line
    config = shipped()
    config["available_node_types"]["worker"]["resources"] = {}  # c7i.4xlarge is known without it
    assert "worker, has 16" in check(tmp_path, config, "--sweep", str(sweep))
    config["available_node_types"]["worker"]["node_config"]["InstanceType"] = "x9.odd"
    assert "'x9.odd' are not known here; give resources: {CPU: ...}" in check(tmp_path, config, "--sweep", str(sweep))
    sweep.write_text("name: wide\nmethods: [scale]\nresources: {env_runners: 15}\n")
    config["available_node_types"]["worker"]["resources"] = {"CPU": 16}
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(config))
    assert any("needs 16 CPUs" in line for line in check_cluster_file(tmp_path / "cluster.yaml", sweep))


@pytest.mark.parametrize(
    "secret",
    [
        "export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
        "aws configure set aws_access_key_id AKIAIOSFODNN7EXAMPLE",
        "export RAY_AUTH_TOKEN=0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "export WANDB_API_KEY=hello-there-general",
        "echo '-----BEGIN OPENSSH PRIVATE KEY-----' > key",
        "git clone https://ghp_abcdefghijklmnopqrstuvwx@host/repo",
    ],
)
def test_a_secret_is_found_and_not_repeated(secret: str, tmp_path: Path) -> None:
    config = shipped()
    config["setup_commands"].append(secret)
    line = check(tmp_path, config)
    assert "secrets do not belong in this file" in line
    assert secret[-12:] not in line


@pytest.mark.parametrize(
    "harmless",
    [
        "export WANDB_API_KEY=$WANDB_API_KEY",
        "export RAY_AUTH_TOKEN_PATH=~/.ray/auth_token",
        "export API_KEY=$(cat key)",
    ],
)
def test_a_reference_to_a_secret_is_none(harmless: str, tmp_path: Path) -> None:
    config = shipped()
    config["setup_commands"].append(harmless)
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(config))
    assert list(check_cluster_file(tmp_path / "cluster.yaml"))


def test_authentication_and_the_dashboard_are_explicit(tmp_path: Path) -> None:
    config = shipped()
    del config["worker_start_ray_commands"]  # Ray's own default has no token
    assert "worker_start_ray_commands: `ray start` without RAY_AUTH_MODE=token" in check(tmp_path, config)
    config = shipped()
    starts = config["head_start_ray_commands"]
    config["head_start_ray_commands"] = [line.replace("127.0.0.1", "0.0.0.0") for line in starts]
    assert "--dashboard-host=0.0.0.0 opens the dashboard" in check(tmp_path, config)
    assert list(check_cluster_file(tmp_path / "cluster.yaml", open_dashboard=True))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray's own
def test_documented_lines_that_need_a_cloud_or_hosts_are_valid_as_far_as_they_can_be_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Programs, options and files; `cluster check` itself runs."""
    from ray.scripts.scripts import cli as ray_cli

    monkeypatch.chdir(ROOT)
    lines = documented("On AWS") + documented("Hosts of your own, by `ray up`")
    assert {" ".join(line.split()[:2]) for line in lines} >= {"ray up", "ray down", "rllib-scale submit"}
    for line in lines:
        program, *words = shlex.split(line)
        group = {"ray": ray_cli, "rllib-scale": main}[program]
        assert isinstance(group, click.Group)
        assert words[0] in group.commands
        if words[:2] == ["cluster", "check"]:
            assert CliRunner().invoke(main, words).exit_code == 0
            continue
        context = group.commands[words[0]].make_context(words[0], words[1:])
        if words[0] == "submit":
            job = SweepJob(context.params["file"], context.params["results"])
            assert "--results s3://BUCKET/table4" in job.entrypoint(context.params["working_dir"])
        if program == "ray":
            assert set(words) & set(SHIPPED)


def test_the_document_says_what_never_ran() -> None:
    last = DOCUMENT.strip().split("\n\n")[-1]
    assert last.startswith("Never run against a real cloud: `cluster.yaml`")
    assert "`cluster-local.yaml`" in last
