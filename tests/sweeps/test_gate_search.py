"""The search of adaptive-gate on small fleets: it begins as its rule, and what it exports plays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from local_ray import LOCAL_RAY

pytest.importorskip("ray")
pytestmark = LOCAL_RAY

from rllib_scale.config import TrialConfig  # noqa: E402
from rllib_scale.evaluation.play import play  # noqa: E402
from rllib_scale.policies.make import make_policy  # noqa: E402
from rllib_scale.schedulers.replicas import AdaptiveGate  # noqa: E402
from rllib_scale.simulator.replicas.state import RECORD  # noqa: E402
from rllib_scale.sweeps.evolution import PriceSearch  # noqa: E402
from rllib_scale.sweeps.validated import TRAINING, draw_instances  # noqa: E402
from simulator.replicas.fleets import SMALL  # noqa: E402

ENV = {
    "cluster": {"tiers": [{"name": "small", "count": 3, "replica": SMALL}]},
    "service": {"name": "replica", "sessions": 12, "warm_up_s": 100.0},
    "episode": {"horizon_s": 600.0},
    "reward": {"name": "tasks-in-system"},
}
CMA = {"epochs": 2, "population": 4, "instances": 2, "validation_instances": 3, "validate_every": 1}


def trial(**problems: Any) -> TrialConfig:
    return TrialConfig.of("adaptive-gate", seed=2, env=ENV, algorithm={"problems": problems or None, **CMA})


def test_it_begins_as_the_gated_rule_and_what_it_exports_plays_the_weights_that_it_chose(tmp_path: Path) -> None:
    search = PriceSearch(trial(servers=(2, 3), sessions=(8, 12)))
    first = search.epoch(1)
    assert search.best_score <= 0.0, "the rule itself is validated first"
    second = search.epoch(2)
    assert second["env_steps"] > first["env_steps"] > 0
    assert np.isfinite(second["objective_validation"])
    search.best = np.linspace(-0.05, 0.05, search.best.size).reshape(search.best.shape)
    search.save_policy(tmp_path / "gate", 2)
    env = trial().env
    exported: Any = play(make_policy(str(tmp_path / "gate"), env), env, 3, [0, 1])
    own: Any = play(AdaptiveGate(search.best[:, 0]), env, 3, [0, 1])
    assert exported.calls(1).dtype == RECORD
    np.testing.assert_array_equal(exported.calls(1), own.calls(1))


def test_sessions_are_drawn_over_their_range() -> None:
    instances = draw_instances(trial(servers=(2,), sessions=(8, 11)), 8, TRAINING, 1)
    assert sorted(each.env.service.sessions for each in instances) == [8, 8, 9, 9, 10, 10, 11, 11]
    assert {each.env.cluster.num_servers for each in instances} == {2}


def test_what_a_training_on_replicas_cannot_draw_is_refused() -> None:
    with pytest.raises(ValueError, match=r"algorithm.problems: on env.service replica it draws servers and sessions"):
        trial(offered_load=(0.5, 0.9))
    with pytest.raises(ValueError, match=r"sessions: low 9 is above high 8"):
        trial(sessions=(9, 8))
    with pytest.raises(ValueError, match=r"env.service fixed: adaptive-gate holds calls.*valid: replica"):
        TrialConfig.of("adaptive-gate")
    with pytest.raises(ValueError, match=r"algorithm.problems.sessions: not with env.service fixed"):
        TrialConfig.of("scale", algorithm={"problems": {"sessions": (8, 9)}})
