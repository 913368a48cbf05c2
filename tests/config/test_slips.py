"""Slips in YAML and on the command line that were taken for something else, each refused at once in one short line."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load, save

from networks.observations import random_network
from rllib_scale.cli import main
from rllib_scale.config import TrialConfig
from rllib_scale.config.plan import SweepConfig, evaluation_units, expand
from rllib_scale.config.yaml_files import build_model, load_model, parse_yaml
from rllib_scale.errors import UserError
from rllib_scale.files import write_json
from rllib_scale.policies.policy import DESCRIPTION, TENSORS, load_policy, save_policy
from rllib_scale.sweeps.run import run_sweep

SWEEP = "name: slips\nmethods: [scale]\n"
BOMB = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]\n" for k in range(1, 9)
)


def refused(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 2, (result.output, result.exception)
    (line,) = result.stderr.splitlines()
    return line


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("seeds: [true]", ["seeds: entry 0", "number", "true"]),
        ("srr: {lambda_kl: off}", ["srr.lambda_kl", "number", "off"]),
        ("training: {learning_rate: on}", ["learning_rate", "number"]),
        ("evaluation: {scales: [yes]}", ["evaluation.scales: entry 0", "number"]),
        ("seeds: [-1]", ["seeds.0", "greater than or equal to 0"]),
        ("? [a, b]\n: 1", ["line 3", "cannot be a key"]),
        ("? {a: 1}\n: 1", ["line 3", "cannot be a key"]),
        (BOMB, ["aliases", "100,000"]),
        ("seeds: &s [*s]", ["aliases"]),
        (f"seeds: [{'x' * 5000}]", ["seeds.0", "xxx..."]),
        (
            f"seeds: {list(range(100))}\ngrid: {{training.gamma: {[k / 1000 for k in range(500)]}}}",
            ["50,000", "10,000"],
        ),
        ("search: {samples: 1000000000, space: {training.gamma: {uniform: [0, 1]}}}", ["1,000,000,000", "10,000"]),
        ("scenario: papr", ["did you mean 'paper'"]),
        ("env: {cluster: paper-61}", ["did you mean 'paper-16'"]),
        ("evaluation: {scenarios: [stedy-0.7]}", ["did you mean 'steady-0.7'"]),
        ("evaluation: {masks: [feasable]}", ["did you mean 'feasible'"]),
        ("evaluation: {heuristics: [fastest-idel]}", ["did you mean 'fastest-idle'"]),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_slip_is_refused(tmp_path: Path, text: str, parts: list[str]) -> None:
    (tmp_path / "slips.yaml").write_text(SWEEP + text + "\n")
    with pytest.raises(UserError) as caught:
        load_model(SweepConfig, tmp_path / "slips.yaml")
    line = str(caught.value)
    assert all(part in line for part in parts), line
    assert "\n" not in line
    assert len(line) < 600
    assert "at least 1 entry" not in line


def test_merges_and_aliases_of_a_sane_size_are_read() -> None:
    text = "base: &base {a: 1, b: 2}\nmore: {<<: *base, b: 3}\ntwice: [*base, *base]\n"
    assert parse_yaml(text, "t") == {
        "base": {"a": 1, "b": 2},
        "more": {"a": 1, "b": 3},
        "twice": [{"a": 1, "b": 2}] * 2,
    }
    with pytest.raises(UserError, match="stands twice"):
        parse_yaml("base: &base {a: 1}\nmore: {<<: *base, b: 1, b: 2}\n", "t")


def test_more_tiers_than_servers_at_a_scale() -> None:
    names = "abcdefgh"
    tiers = [
        {"name": name, "count": 2, "compute_gflops": 9, "memory_gb": 128, "idle_power_w": 1, "busy_power_w": 2}
        for name in names
    ]
    data = {"name": "t", "methods": ["scale"], "env": {"cluster": {"tiers": tiers}}, "evaluation": {"scales": [6]}}
    sweep = build_model(SweepConfig, data, "t")
    with pytest.raises(UserError, match=r"evaluation.scales 6: scenario train: 6 servers are too few: at least 8"):
        evaluation_units(sweep, expand(sweep, "t"))


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda tensor: torch.full_like(tensor, torch.nan), "is not finite"),
        (lambda tensor: tensor.view(torch.int32), "not weights"),
    ],
    ids=["NaN", "relabelled"],
)
def test_a_policy_without_numbers_is_refused(tmp_path: Path, change, part: str) -> None:
    import hashlib
    import json

    save_policy(tmp_path, random_network(), TrialConfig(), epochs=1)
    load_policy(tmp_path)
    named = load((tmp_path / TENSORS).read_bytes())
    first = next(name for name, tensor in sorted(named.items()) if tensor.dtype == torch.float32)
    content = save(named | {first: change(named[first])})
    (tmp_path / TENSORS).write_bytes(content)
    description = json.loads((tmp_path / DESCRIPTION).read_text())
    write_json(tmp_path / DESCRIPTION, description | {"sha256": hashlib.sha256(content).hexdigest()})
    with pytest.raises(UserError, match=part) as caught:
        load_policy(tmp_path)
    assert first in str(caught.value)


def test_slips_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SWEEP)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    both = tmp_path / "out.csv"
    for arguments, parts in (
        (["sweep", tmp_path / "s.yaml", "--results", ""], ["--results ''", "empty"]),
        (
            ["sweep", tmp_path / "s.yaml", "--results", tmp_path / "r", "--reuse", tmp_path / "empty"],
            ["--reuse", "empty"],
        ),
        (["fetch", tmp_path / "empty", tmp_path / "sub"], ["empty", "no results folder"]),
        (["simulate", "--gantt", "x.jpg"], ["--gantt x.jpg", ".png"]),
        (["simulate", "--schedule", "x.parquet"], ["--schedule x.parquet", ".csv"]),
        (["simulate", "--trace", both, "--save-workload", both], ["--trace", "same file"]),
        (["simulate", "--trace", tmp_path / "empty"], ["cannot be written", "no file"]),
        (["execute", "w.json", "--schedule", "x.txt"], ["--schedule x.txt", ".csv"]),
        (["import", "csv", both, "--output", tmp_path / "file" / "w.json"], ["--output", "cannot be written"]),
        (["fit-workload", both, "--output", tmp_path / "file" / "t.json"], ["--output", "cannot be written"]),
    ):
        line = refused(*arguments)
        assert all(part in line for part in parts), line
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("training: {num_envs: 1000000000}", ["training.num_envs", "65536", "1000000000"]),
        ("training: {steps_per_epoch: 1024000000000}", ["steps_per_epoch", "1,024,000,000,000", "64 GB"]),
        ("methods: [dqn]\ndqn: {buffer_size: 1000000000000}", ["dqn.buffer_size", "64 GB"]),
        ("network: {embedding_dim: 1000000000}", ["network.embedding_dim", "4096"]),
        ("network: {mlp_hidden: [1000000]}", ["network.mlp_hidden.0", "4096"]),
        ("evaluation: {episodes: 1000000000000}", ["evaluation.episodes", "100000"]),
        ("env: {workload: {offered_load: 1.0e+30}}", ["offered_load", "1000"]),
        ("env: {episode: {clock_step_s: 1.0e-300}}", ["clock_step_s", "0.000001"]),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_size_that_no_machine_has_is_refused(tmp_path: Path, text: str, parts: list[str]) -> None:
    head = SWEEP if "methods" not in text else "name: slips\n"
    (tmp_path / "slips.yaml").write_text(head + text + "\n")
    with pytest.raises(UserError) as caught:
        expand(load_model(SweepConfig, tmp_path / "slips.yaml"), "slips.yaml")
    line = str(caught.value).removeprefix(str(tmp_path))
    assert all(part in line for part in parts), line
    assert "\n" not in line
    assert len(line) <= 300


@pytest.mark.parametrize(
    ("evaluation", "part"),
    [
        ({"scales": [1_000_000]}, "tasks on 1,000,000 servers"),
        ({"scales": [16], "scenarios": ["train"]}, "for 1e+09 s"),
    ],
)
def test_a_sweep_whose_evaluation_never_ends_is_refused(tmp_path: Path, evaluation: dict, part: str) -> None:
    data = {"name": "t", "methods": ["scale"], "env": {"episode": {"horizon_s": 1e9}}, "evaluation": evaluation}
    with pytest.raises(UserError, match=re.escape(part)):
        run_sweep(build_model(SweepConfig, data, "t"), tmp_path / "results", "t", None, print)
    assert not list((tmp_path / "results").glob("trials/*"))


def test_sizes_and_files_on_the_command_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for arguments, parts in (
        (["simulate", "--horizon", "1e7"], ["tasks on 16 servers"]),
        (["simulate", "--servers", "1000000"], ["1,000,000 servers"]),
        (["simulate", "--servers", "4096", "--gantt", tmp_path / "g.png"], ["--gantt", "2,000"]),
        (["evaluate", "fastest-idle", "--episodes", "1000000000"], ["--episodes", "100000"]),
        (["simulate", "--workload", tmp_path / "pipe"], ["pipe", "valid: a file"]),
        (["simulate", "--workload", tmp_path / "link"], ["link", "valid: a file"]),
        (["sweep", tmp_path / "link"], ["link", "valid: a file"]),
        (["simulate", "--config", tmp_path / "pipe"], ["pipe", "valid: a file"]),
        (["import", "tracelab", tmp_path / "link", "--output", tmp_path / "w.json"], ["link", "valid: a file"]),
        (["sweep", "a" * 5000], ["name too long"]),
    ):
        line = refused(*arguments)
        assert all(part in line for part in parts), line
    assert not (tmp_path / "g.png").exists()
