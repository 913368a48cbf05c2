"""Populations: Tune runs small members, which are copied, wait and change as a sweep's trainings do."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st
from ray import tune

from local_ray import LOCAL_RAY
from rllib_scale.config.search import Distribution, PBTConfig, SearchConfig, points
from rllib_scale.sweeps.history import history
from rllib_scale.sweeps.stopping import Population

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the members' processes cannot import it
pytestmark = LOCAL_RAY
RATE, PASSES = "algorithm.learning_rate", "algorithm.passes"
EPOCHS = 10


class Member(tune.Trainable):
    """Its score is the digit at the end of its name once SCORED epochs have ended, and `c0` never has one."""

    SCORED = 3

    def setup(self, config: dict[str, Any]) -> None:
        self.lineage = ""

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        letter, digit = self.config["trial"]
        self.lineage += letter
        if letter == "d" and len(self.lineage) == self.SCORED:
            raise RuntimeError("fails for good")
        score = float(digit) if len(self.lineage) >= self.SCORED and digit != "0" else math.nan
        done = len(self.lineage) == EPOCHS
        return {"env_steps": 64 * len(self.lineage), "score": score, "lineage": self.lineage, "done": done}

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        (Path(checkpoint_dir) / "lineage").write_text(self.lineage)

    def load_checkpoint(self, checkpoint: Any) -> None:
        self.lineage = (Path(checkpoint) / "lineage").read_text()


def lineages(folder: Path, *names: str, resumed_from: int = 0) -> dict[str, str]:
    """Which member trained each epoch of the members that end, trained one at a time."""
    search = SearchConfig(
        scheduler="pbt",
        space={RATE: Distribution(uniform=(0.1, 0.2))},
        pbt=PBTConfig(interval_steps=100, quantile=0.5),
    )
    tuner = tune.Tuner(
        tune.with_resources(Member, {"cpu": ray.cluster_resources()["CPU"]}),
        param_space={"trial": tune.grid_search(list(names)), "settings": "", RATE: 0.1},
        tune_config=tune.TuneConfig(scheduler=Population(search, [[{"env_steps": resumed_from}]]), reuse_actors=True),
        run_config=tune.RunConfig(storage_path=str(folder), verbose=0),
    )
    ended = [result.metrics for result in tuner.fit() if result.error is None]
    return {metrics["config"]["trial"]: metrics["lineage"] for metrics in ended}


def test_a_member_is_copied_or_replaced_only_with_a_score_and_all_go_on_after_each_comparison(tmp_path: Path) -> None:
    """Compared after epochs of 64 steps at 128, 256, 384 and 512: Tune itself would wait for ever after the last."""
    assert lineages(tmp_path, "a1", "b2", "c0") == {"a1": "b" * 8 + "aa", "b2": "b" * 10, "c0": "c" * 10}


@pytest.mark.slow
def test_members_go_on_where_they_waited_for_one_that_failed(tmp_path: Path) -> None:
    """The last, as the others wait at 256 steps."""
    assert lineages(tmp_path, "a1", "b2", "d3") == {"a1": "b" * 8 + "aa", "b2": "b" * 10}


@pytest.mark.slow
def test_a_resumed_population_is_compared_at_its_next_interval(tmp_path: Path) -> None:
    """As if at 450 steps: the next comparison is at 500."""
    assert lineages(tmp_path, "a1", "b2", resumed_from=450) == {"a1": "b" * 8 + "aa", "b2": "b" * 10}


SPACE = st.tuples(st.floats(1e-6, 1e6), st.floats(1.0001, 1e3), st.sampled_from(["uniform", "loguniform"]))


@given(SPACE, st.integers(1, 9), st.integers(0, 9), st.integers(0, 99))
def test_changed_settings_stay_in_their_space(rate: tuple[float, float, str], low: int, width: int, seed: int) -> None:
    bounds = (rate[0], rate[0] * rate[1])
    space = {
        RATE: Distribution(**{rate[2]: bounds}),
        PASSES: Distribution(uniform=(low, low + width + 0.5)),
        "srr.reduction": Distribution(choice=("sum", "mean")),
    }
    search = SearchConfig(scheduler="pbt", space=space, samples=1, seed=seed)
    scheduler, names = Population(search, []), {"trial": "a", "settings": {}}
    (config,) = points(search)
    for _ in range(20):
        clone = SimpleNamespace(config=config | {"trial": "b", "settings": {}})
        config, _ = scheduler._get_new_config(SimpleNamespace(config=names), clone)
        assert config["trial"] == "a"
        assert bounds[0] <= config[RATE] <= bounds[1]
        assert config[RATE] in (*bounds, float(f"{config[RATE]:.4g}"))
        assert type(config[PASSES]) is int
        assert low <= config[PASSES] <= low + width
        assert config["srr.reduction"] in ("sum", "mean")


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.sampled_from(["x", [1]])), max_size=8))
def test_the_history_holds_each_change_and_nothing_else(epochs: list[tuple[str, int, Any]]) -> None:
    curve = [
        {"epoch": epoch, "settings": {"p": p, "q": q}, "member": member}
        for epoch, (member, p, q) in enumerate(epochs, start=1)
    ]
    rows = history(curve, "name")
    known: dict[str, Any] = {}
    for row in curve:
        now = {each["setting"]: each for each in rows if each["epoch"] == row["epoch"]}
        for setting, value in row["settings"].items():
            state = (json.dumps(value), row["member"])
            assert (setting in now) == (known.get(setting) != state)
            known[setting] = state
            if setting in now:
                assert (now[setting]["value"], now[setting]["member"], now[setting]["trial"]) == (*state, "name")
    assert history([{"epoch": 1}], "name") == []
