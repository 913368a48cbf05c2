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
from rllib_scale.config import EnvConfig, MaskMode, TrialConfig
from rllib_scale.evaluation.play import play
from rllib_scale.networks.build import Network
from rllib_scale.observation.answers import OPEN
from rllib_scale.observation.feature_sets import FEATURE_SETS
from rllib_scale.policies.onnx_export import export_onnx
from rllib_scale.policies.policy import TrainedPolicy, load_policy, save_policy

SERVERS = (1, 2, 3, 16, 64, 333, 1024)
NEAR = 1e-4
"""Logits that differ by less may be rounded into another order; those of equal servers must not be."""


def opened(path: Path) -> Any:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def disagreements(session: Any, network: Network, rows: Tensor, mask: Tensor) -> int:
    """Choices other than torch's in double precision, where a tie goes to the first; each must be a near one.

    Args:
        session: of the exported network.
        network: it.
        rows: (B, W) observations.
        mask: (B, N) bool.
    """
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


@pytest.mark.parametrize("servers", [17, *(slow(n) for n in SERVERS)])
def test_a_trained_policy_chooses_what_torch_chooses(scale: Path, servers: int) -> None:
    """States of three tiers, in which many servers are equal, some slots empty, half of the servers closed."""
    session, network = opened(scale), load_policy("zoo:scale").network  # type: ignore[union-attr]
    for batch, seed in ((400, 1), (1, 2), (1, 3)):
        rows = random_observations(batch, servers, seed, empty=0.1)
        for mask in (random_mask(batch, servers, seed), torch.ones(batch, servers, dtype=torch.bool)):
            assert disagreements(session, network, rows, mask) == 0


@pytest.mark.slow
def test_a_hundred_thousand_states_are_decided_as_torch_decides_them(scale: Path) -> None:
    session, network = opened(scale), load_policy("zoo:scale").network  # type: ignore[union-attr]
    sizes = (1, 2, 3, 5, 8, 16, 17, 31, 32, 48, 63, 64, 96, 100, 128, 255, 256, 333, 512, 1024)
    other, states = 0, 0
    for servers in sizes:
        for seed in range(10):
            rows = random_observations(500, servers, seed, empty=0.05 * (seed % 3))
            mask = random_mask(500, servers, seed) | (torch.arange(500) % 2 == 0)[:, None]
            other, states = other + disagreements(session, network, rows, mask), states + 500
    assert states == 100_000
    print(f"{other} of {states} states: choices other than torch's, all near ties of servers that differ")
    assert other <= 10


@pytest.mark.slow
@pytest.mark.parametrize("mask", ["none", "feasible"])
def test_it_chooses_what_the_policy_chooses_as_it_plays(scale: Path, mask: MaskMode) -> None:
    """Every decision of two episodes: those of the compiled network that plays."""
    session, chosen = opened(scale), []

    class Watched(TrainedPolicy):
        def __call__(self, observation: np.ndarray, fit: np.ndarray) -> np.ndarray:
            decided = super().__call__(observation, fit)
            servers = np.ascontiguousarray(observation[:, 5:].reshape(len(observation), -1, 5))
            may = fit[:, 0] == OPEN if mask == "feasible" else np.ones(fit[:, 0].shape, dtype=bool)
            feeds = {"task": np.ascontiguousarray(observation[:, :5]), "servers": servers, "mask": may}
            chosen.append(np.stack((decided, session.run(["choice"], feeds)[0])))
            return decided

    policy = load_policy("zoo:scale")
    assert isinstance(policy, TrainedPolicy)
    play(Watched(policy.network, policy.trial, policy.epochs, mask), EnvConfig(episode={"mask": mask}), 3, [0, 1])
    ours, theirs = np.concatenate(chosen, axis=1)
    assert len(ours) > 20
    assert len(np.unique(ours)) > 2
    np.testing.assert_array_equal(theirs, ours)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "sizes"),
    [
        ("deepsets", {}),
        ("set-transformer", {}),
        ("attention-model", {}),
        ("scale-r", {"skip": "price"}),
        ("ppo", {}),
    ],
)
def test_every_network_chooses_what_torch_chooses(tmp_path: Path, method: str, sizes: dict[str, Any]) -> None:
    trial = TrialConfig(method=method, network=sizes)
    network = random_network(method=method, **sizes)
    facts = export_onnx(TrainedPolicy(network, trial, epochs=1), tmp_path / "policy.onnx")
    assert facts["servers"] == ("any" if trial.spec.any_scale else "16")
    session = opened(tmp_path / "policy.onnx")
    for servers in (1, 3, 16, 100) if trial.spec.any_scale else (16,):
        rows = random_rows(method, 200, servers, seed=servers, empty=0.1)
        for batch in (rows, rows[:1]):
            assert disagreements(session, network, batch, random_mask(len(batch), servers)) <= 1


@pytest.mark.slow
def test_a_policy_for_a_fixed_number_of_servers_refuses_another(tmp_path: Path) -> None:
    trial = TrialConfig(method="ppo")
    export_onnx(TrainedPolicy(random_network(method="ppo"), trial, epochs=1), tmp_path / "policy.onnx")
    session = opened(tmp_path / "policy.onnx")
    shapes = {each.name: each.shape for each in session.get_inputs()}
    assert shapes == {"task": ["batch", 5], "servers": ["batch", 16, 5], "mask": ["batch", 16]}


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
        ("zoo:scale", "there/", "must end in .onnx"),
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
    save_policy(tmp_path / "policy", random_network(), TrialConfig(), epochs=1)
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "onnxscript" else found(name, *a))
    result = CliRunner().invoke(main, ["export", str(tmp_path / "policy"), "--onnx", str(tmp_path / "policy.onnx")])
    assert result.exit_code == 2
    assert result.stderr.strip() == "Error: --onnx: onnxscript not installed; pip install 'rllib-scale[onnx]'"
    assert not (tmp_path / "policy.onnx").exists()
