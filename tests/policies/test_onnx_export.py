"""A policy as an ONNX file: onnxruntime chooses what torch chooses, whatever the number of states and servers."""

from __future__ import annotations

import copy
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from click.testing import CliRunner
from torch import Tensor

from marks import slow
from networks.observations import random_mask, random_network, random_observations, random_rows
from rllib_scale import __version__
from rllib_scale.cli import main
from rllib_scale.config import TrialConfig
from rllib_scale.errors import extra
from rllib_scale.networks.build import Network
from rllib_scale.observation.feature_sets import FEATURE_SETS
from rllib_scale.policies.onnx_export import export_onnx
from rllib_scale.policies.policy import TrainedPolicy, load_policy

NEAR = 1e-4
"""Logits that differ by less may be rounded into another order; those of equal servers must not be."""


def opened(path: Path) -> Any:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def disagreements(session: Any, network: Network, rows: Tensor, mask: Tensor) -> int:
    """Choices other than torch's in double precision, where a tie goes to the first; each must be a near one."""
    spec = network.inputs.spec
    task, servers = rows[:, : spec.task_dim], rows[:, spec.task_dim :].unflatten(1, (-1, spec.server_dim))
    feeds = {"task": task.numpy(), "servers": servers.contiguous().numpy(), "mask": mask.numpy()}
    logits, choice = session.run(None, feeds)
    with torch.no_grad():
        wanted = copy.deepcopy(network).double()(rows.double(), mask)[1].numpy()
    seen = wanted > -1e8
    np.testing.assert_array_equal(logits > -1e8, seen)
    np.testing.assert_allclose(logits[seen], wanted[seen], atol=NEAR, rtol=NEAR)
    best, each = wanted.astype(np.float32).argmax(1), np.arange(len(rows))
    other = np.flatnonzero(choice != best)
    assert (np.abs(wanted[each, best] - wanted[each, choice])[other] < NEAR).all()
    a, b = servers[other, best[other]].numpy(), servers[other, choice[other]].numpy()
    assert (a != b).any(axis=1).all(), "equal servers: the first of them must be chosen"
    return len(other)


@pytest.fixture(scope="module")
def scale(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported zoo:scale."""
    path = tmp_path_factory.mktemp("onnx") / "scale.onnx"
    result = CliRunner().invoke(main, ["export", "zoo:scale", "--onnx", str(path)])
    assert result.exit_code == 0, (result.output, result.exception)
    assert result.stderr == ""
    return path


@pytest.mark.parametrize("servers", [17, *(slow(n) for n in (1, 1024))])
def test_a_trained_policy_chooses_what_torch_chooses(scale: Path, servers: int) -> None:
    """States of three tiers, in which many servers are equal, some slots empty, half of the servers closed."""
    session, network = opened(scale), load_policy("zoo:scale").network  # type: ignore[union-attr]
    for batch, seed in ((400, 1), (1, 2), (1, 3)):
        rows = random_observations(batch, servers, seed, empty=0.1)
        for mask in (random_mask(batch, servers, seed), torch.ones(batch, servers, dtype=torch.bool)):
            assert disagreements(session, network, rows, mask) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "sizes"),
    [("deepsets", {}), ("set-transformer", {}), ("attention-model", {}), ("scale", {"skip": "linear"}), ("ppo", {})],
)
def test_every_network_chooses_what_torch_chooses(tmp_path: Path, method: str, sizes: dict[str, Any]) -> None:
    trial, any_scale = TrialConfig.of(method, network=sizes), method != "ppo"
    network = random_network(method=method, **sizes)
    facts = export_onnx(TrainedPolicy(network, trial, epochs=1), tmp_path / "policy.onnx")
    assert facts["servers"] == ("any" if any_scale else "16")
    session = opened(tmp_path / "policy.onnx")
    shapes = {each.name: each.shape for each in session.get_inputs()}
    assert shapes["mask"] == ["batch", "servers" if any_scale else 16]
    for servers in (1, 3, 16, 100) if any_scale else (16,):
        rows = random_rows(method, 200, servers, seed=servers, empty=0.1)
        for batch in (rows, rows[:1]):
            assert disagreements(session, network, batch, random_mask(len(batch), servers)) <= 1


def test_the_file_says_what_it_is(scale: Path) -> None:
    session, policy = opened(scale), load_policy("zoo:scale")
    facts = session.get_modelmeta().custom_metadata_map
    assert facts["method"] == "scale"
    assert facts["policy"] == policy.name
    assert facts["rllib_scale_version"] == __version__
    assert json.loads(facts["observation"]) == policy.trial.env.observation.model_dump(mode="json")
    features = FEATURE_SETS["paper"]
    assert [each["name"] for each in json.loads(facts["task_features"])] == [f.name for f in features.task]
    assert [each["name"] for each in json.loads(facts["server_features"])] == [f.name for f in features.server]
    assert {each.name: each.shape for each in session.get_inputs()} == {
        "task": ["batch", 5],
        "servers": ["batch", "servers", 5],
        "mask": ["batch", "servers"],
    }


# ---------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("policy", "file", "why"),
    [
        ("zoo:context-price", "policy.onnx", "method context-price has no network to export"),
        ("zoo:scale", "policy.pb", "must end in .onnx"),
        ("fastest-idle", "policy.onnx", "fastest-idle: no such policy folder"),
    ],
)
def test_what_cannot_be_exported_is_refused_and_nothing_written(
    policy: str, file: str, why: str, tmp_path: Path
) -> None:
    result = CliRunner().invoke(main, ["export", policy, "--onnx", f"{tmp_path}/{file}"])
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    assert why in line
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_it_is_said_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "onnxscript" else found(name, *a))
    result = CliRunner().invoke(main, ["export", "zoo:scale", "--onnx", str(tmp_path / "policy.onnx")])
    assert result.exit_code == 2
    assert result.stderr.strip() == f"Error: --onnx: onnxscript not installed; {extra('onnx')}"
    assert not (tmp_path / "policy.onnx").exists()
