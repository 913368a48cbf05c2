"""A network that says which held call goes: compiled play against torch's forward, and against the index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fleets import fleet
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rllib_scale.config import TrialConfig
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import play
from rllib_scale.observation.replicas import HELD_CALLS
from rllib_scale.policies.make import make_policy
from rllib_scale.policies.pointed_policy import PointedNetworks
from rllib_scale.policies.policy import load_policy, save_weights
from rllib_scale.schedulers.release import ReleaseIndex
from rllib_scale.simulator.replicas.gate import GATE_TERMS, PLACE_TERMS
from rllib_scale.simulator.replicas.state import CANDIDATES

FULL = fleet(sessions=16, end_s=1000.0)
GATE = len(GATE_TERMS) + len(PLACE_TERMS)


def networks(**sizes: Any) -> PointedNetworks:
    return PointedNetworks(TrialConfig.of("scale-release", env=FULL, network=sizes))


def drawn(of: PointedNetworks, rng: np.random.Generator) -> np.ndarray:
    """Parameters of which each one counts; those of the gate are small, as their unit is the memory."""
    parameters = of.initial + 0.2 * rng.normal(size=len(of.initial))
    parameters[:GATE] = 0.02 * rng.normal(size=GATE)
    return parameters


def agree(seed: int, **sizes: int) -> np.ndarray:
    """Each decision of compiled play is torch's; (2, D) the answers, and whether one had to go."""
    rng, of = np.random.default_rng(seed), networks(**sizes)
    parameters = drawn(of, rng)
    policy = of.policy(parameters[None, :, None])
    policy.kept = 10_000
    play(policy, FULL, seed, [0, 1])
    answers = []
    for pointed in policy.pointed:
        rows, (answer, must) = pointed.rows[: pointed.decided[0]], pointed.answers[: pointed.decided[0]].T
        mask = np.ones((len(rows), CANDIDATES + 1), dtype=bool)
        mask[:, CANDIDATES] = must == 0
        with torch.no_grad():
            logits = of.at(parameters)(torch.from_numpy(rows), torch.from_numpy(mask))[1].numpy()
        chosen = np.take_along_axis(logits, answer[:, None], axis=1)[:, 0]
        np.testing.assert_allclose(chosen, logits.max(axis=1), atol=1e-4, rtol=0)
        keys = rows[:, HELD_CALLS.head() :].reshape(len(rows), CANDIDATES + 1, HELD_CALLS.server_dim)
        assert (keys[np.arange(len(rows)), answer, HELD_CALLS.server_column("capacity")] == 1.0).all()
        assert not (answer[must == 1] == CANDIDATES).any()
        answers.append((answer, must))
    return np.concatenate(answers, axis=1)


def test_each_decision_of_compiled_play_is_that_of_the_torch_network() -> None:
    sizes = {"embedding_dim": 8, "num_heads": 2, "num_blocks": 2}
    answers, must = np.concatenate([agree(1), agree(2), agree(3, **sizes)], axis=1)
    assert len(answers) > 500
    assert 0.02 < (answers == CANDIDATES).mean() < 0.98
    assert len(np.unique(answers)) > 5
    assert must.sum() > 0


@pytest.mark.slow
@settings(max_examples=50, phases=[Phase.generate])
@given(st.integers(0, 2**32 - 1))
def test_each_decision_of_many_drawn_networks_is_torchs(seed: int) -> None:
    agree(seed)


def test_begun_as_an_index_it_plays_the_same_episode_and_its_files_play_it_too(tmp_path: Path) -> None:
    rng, of = np.random.default_rng(3), networks()
    weights = 0.3 * rng.normal(size=ReleaseIndex.size()).astype(np.float32).astype(np.float64)
    weights[:GATE] *= 0.1
    of.begin_as(weights)
    save_weights(tmp_path / "policy", of.named(of.initial[:, None]), of.trial, 0)
    index: Any = play(ReleaseIndex(weights, of.trial.algorithm.base), FULL, 5, [0])
    for policy in (of.policy(of.initial[None, :, None]), make_policy(str(tmp_path / "policy"), FULL)):
        pointed: Any = play(policy, FULL, 5, [0])
        np.testing.assert_array_equal(pointed.calls(), index.calls())
    with pytest.raises(UserError, match=r"decision sample: .*valid: argmax"):
        load_policy(tmp_path / "policy", decision="sample")


def test_what_such_a_training_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"algorithm.rule scale-release: for network cross-attention alone"):
        TrialConfig.of("scale-release", env=FULL, network={"name": "deep-sets"})
    with pytest.raises(ValueError, match=r"network null: es trains none such; valid: cross-attention"):
        TrialConfig.of("release", env=FULL, algorithm={"name": "es", "rule": "scale-release"})
    with pytest.raises(ValueError, match=r"algorithm.initial_policy: release-index has an initial rule of its own"):
        TrialConfig.of("release", env=FULL, algorithm={"initial_policy": "zoo:scale"})
