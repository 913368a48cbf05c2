"""A short training of scale-release on a tiny fleet: it gains, and goes on from where it was saved to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from local_ray import LOCAL_RAY

pytest.importorskip("ray")
pytestmark = LOCAL_RAY

from rllib_scale.config import TrialConfig  # noqa: E402
from rllib_scale.errors import UserError  # noqa: E402
from rllib_scale.evaluation.candidates import Instance, outcomes_of, play_base  # noqa: E402
from rllib_scale.policies.make import make_policy  # noqa: E402
from rllib_scale.policies.policy import save_weights  # noqa: E402
from rllib_scale.schedulers.release import ReleaseIndex  # noqa: E402
from rllib_scale.sweeps.constrained import Compared, ratios  # noqa: E402
from rllib_scale.sweeps.evolution import PriceSearch  # noqa: E402
from simulator.replicas.fleets import BASE, TRAINED  # noqa: E402

SEARCH = {"epochs": 12, "population": 12, "instances": 3, "validation_instances": 4, "validate_every": 6, "base": BASE}
SEARCH |= {"initial_step": 0.15, "learning_rate": 0.1}


def trial(epochs: int = 12, **settings: Any) -> TrialConfig:
    return TrialConfig.of("scale-release", seed=3, env=TRAINED, algorithm=SEARCH | {"epochs": epochs} | settings)


def test_a_short_training_gains_on_episodes_that_it_never_saw(tmp_path: Path) -> None:
    search = PriceSearch(trial())
    rows = [search.epoch(number) for number in range(1, 13)]
    assert all(row["env_steps"] > 0 for row in rows)
    search.save_policy(tmp_path / "release", 12)
    search.stop()
    policy = make_policy(str(tmp_path / "release"), search.trial.env)
    new = [Instance(search.trial.env, 1000 + number) for number in range(8)]
    found = ratios([Compared(outcomes_of(policy, 1, each), play_base(each, BASE)) for each in new], [1.0] * 8)
    assert found[0, 0] < 0.0, "the mean of calls"


@pytest.mark.slow
def test_it_goes_on_to_the_bit_and_begins_as_an_index(tmp_path: Path) -> None:
    weights = np.zeros((ReleaseIndex.size(), 1))
    weights[-11:, 0] = np.random.default_rng(1).normal(size=11)
    index = TrialConfig.of("release", env=TRAINED, algorithm={"base": BASE})
    save_weights(tmp_path / "index", {"weights": weights}, index, 1)
    begins = {"initial_policy": str(tmp_path / "index")}
    whole, cut = PriceSearch(trial(2, **begins)), PriceSearch(trial(2, **begins))
    instance = Instance(whole.trial.env, 7)
    own = whole.search.play(whole.search.initial[None], instance).own
    assert own.response_s == outcomes_of(ReleaseIndex(weights[:, 0], BASE), 1, instance).response_s
    whole.epoch(1)
    cut.epoch(1)
    cut.save(tmp_path / "state")
    later = PriceSearch(trial(2, **begins))
    later.load(tmp_path / "state")
    first, second = whole.epoch(2), later.epoch(2)
    assert first["objective"] == second["objective"]
    np.testing.assert_array_equal(whole.candidate(), later.candidate())
    for search in (whole, cut, later):
        search.stop()
    with pytest.raises(UserError, match=r"algorithm.initial_policy .*: is a policy of adaptive-price; valid: one of"):
        PriceSearch(trial(initial_policy="zoo:adaptive-price"))
