"""A training that goes on as a copy of another one, as PBT continues it: RLlib's checkpoint holds the other's rate."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_ray import LOCAL_RAY

pytestmark = LOCAL_RAY

from rllib_scale.config import TrialConfig  # noqa: E402
from rllib_scale.sweeps.learners import RLlibLearner  # noqa: E402

SMALL = {"epochs": 4, "steps_per_epoch": 64, "num_envs": 2}
ON_POLICY = SMALL | {"minibatch_size": 32, "passes": 1, "final_learning_rate": 0.0}
OFF_POLICY = SMALL | {"batch_size": 32, "warmup_steps": 32, "steps_per_round": 32, "buffer_size": 1024}


@pytest.mark.parametrize("method", ["scale", "dqn", "sac"])
def test_it_learns_at_its_own_rate(method: str, tmp_path: Path) -> None:
    parent = TrialConfig.of(method, algorithm=ON_POLICY if method == "scale" else OFF_POLICY)
    child = parent.changed({"algorithm.learning_rate": 1e-6})
    trained, copied = RLlibLearner(parent, None), RLlibLearner(child, None)
    try:
        trained.epoch(1)
        trained.save(tmp_path / "state")
        copied.load(tmp_path / "state")
        copied.epoch(2)
        learner = copied.algorithm.learner_group._learner
        rates = [group["lr"] for optimizer in learner._optimizer_parameters for group in optimizer.param_groups]
        assert rates
        assert 0 <= min(rates) <= max(rates) <= 1e-6
    finally:
        trained.stop()
        copied.stop()
