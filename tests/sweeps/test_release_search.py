"""The search of release on a tiny fleet: it gains, and what it may not choose is the rule itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from local_ray import LOCAL_RAY

pytest.importorskip("ray")
pytestmark = LOCAL_RAY

from rllib_scale.config import TrialConfig  # noqa: E402
from rllib_scale.evaluation.candidates import Instance, Outcomes, outcomes_of, play_base  # noqa: E402
from rllib_scale.evaluation.play import play  # noqa: E402
from rllib_scale.policies.make import make_policy  # noqa: E402
from rllib_scale.schedulers.release import ReleaseIndex  # noqa: E402
from rllib_scale.sweeps.constrained import (  # noqa: E402
    MARGIN,
    MULTIPLIERS,
    RATE,
    Compared,
    is_allowed,
    penalised,
    raised,
    ratios,
)
from rllib_scale.sweeps.evolution import PriceSearch  # noqa: E402
from rllib_scale.sweeps.validated import TRAINING, draw_instances  # noqa: E402
from simulator.replicas.fleets import BASE, TRAINED  # noqa: E402

SEARCH = {"epochs": 6, "population": 8, "instances": 3, "validation_instances": 4, "validate_every": 3, "base": BASE}


def trial(**settings: Any) -> TrialConfig:
    return TrialConfig.of("release", seed=5, env=TRAINED, algorithm=SEARCH | settings)


def test_a_short_search_gains_on_episodes_that_it_never_saw_and_exports_what_it_chose(tmp_path: Path) -> None:
    search = PriceSearch(trial(initial_step=0.3, reference="lmetric:gate=0.35"))
    rows = [search.epoch(number) for number in range(1, 7)]
    assert all(row["env_steps"] > 0 for row in rows)
    assert search.best_score < 0.0
    search.save_policy(tmp_path / "release", 6)
    env, policy = search.trial.env, make_policy(str(tmp_path / "release"), search.trial.env)
    new = [Instance(env, 1000 + number) for number in range(8)]
    played = search.search.play(search.best.reshape(1, -1), new[0]).own
    assert outcomes_of(policy, 1, new[0]).response_s == played.response_s, "the candidate that was chosen"
    begun, found = (
        ratios([Compared(outcomes_of(each, 1, of), play_base(of, BASE)) for of in new], [1.0] * 8)[0, 0]
        for each in (ReleaseIndex(ReleaseIndex.initial(), BASE), policy)
    )
    assert found < begun - 0.02, "the mean of calls, beside that of the index that it began with"
    search.stop()


def memory_of(search: PriceSearch) -> Any:
    return search.inner.algorithm.search.memory


def test_it_goes_on_to_the_bit_and_runners_change_nothing(tmp_path: Path) -> None:
    whole, cut = PriceSearch(trial()), PriceSearch(trial())
    first = whole.epoch(1)
    assert first["objective"] == cut.epoch(1)["objective"]
    assert (memory_of(cut) != MULTIPLIERS).any(), "the multipliers have moved where it is interrupted"
    cut.save(tmp_path / "state")
    two = TrialConfig.of("release", seed=5, env=TRAINED, algorithm=SEARCH, resources={"env_runners": 2, "cpus": 0.01})
    later, spread = PriceSearch(trial()), PriceSearch(two)
    later.load(tmp_path / "state")
    spread.load(tmp_path / "state")
    for number in (2, 3):
        objectives = {search.epoch(number)["objective"] for search in (whole, later, spread)}
        assert len(objectives) == 1, objectives
    for search in (later, spread):
        np.testing.assert_array_equal(whole.candidate(), search.candidate())
        np.testing.assert_array_equal(memory_of(whole), memory_of(search))
    for search in (whole, cut, later, spread):
        search.stop()


def test_without_a_better_one_the_rule_itself_is_exported(tmp_path: Path) -> None:
    search = PriceSearch(trial())
    search.save_policy(tmp_path / "release", 0)
    search.stop()
    env = trial().env
    exported, rule = (play(make_policy(name, env), env, 3, [0]) for name in (str(tmp_path / "release"), BASE))
    np.testing.assert_array_equal(exported.calls(), rule.calls())  # type: ignore[attr-defined]


def outcomes(mean: list[float], call: list[float], turn: list[float]) -> Outcomes:
    nothing = np.zeros(len(mean))
    return Outcomes(np.array(mean), *[nothing] * 4, np.array(call), np.array(turn))


def test_what_the_tails_exceed_is_charged_and_bars_a_candidate() -> None:
    rule = outcomes([10.0], [50.0], [90.0])
    shorter = [Compared(outcomes([8.0, 8.0, 12.5], [50.0, 100.0, 25.0], [90.0, 45.0, 45.0]), rule)] * 2
    found = ratios(shorter, [1.0, 3.0])
    np.testing.assert_allclose(found, np.log([[0.8, 0.8, 1.25], [1.0, 2.0, 0.5], [1.0, 0.5, 0.5]]))
    of_margin = [2 * MARGIN[0] + 7 * MARGIN[1], 2 * MARGIN[0], 0.0]
    np.testing.assert_allclose(penalised(found, np.array([2.0, 7.0])), np.log([0.8, 0.8 * 4, 1.25]) + of_margin)
    assert [is_allowed(found[:, candidate]) for candidate in range(3)] == [False, False, True]
    np.testing.assert_allclose(raised(found, np.array([1.0, 0.5])), [1.0 + RATE * MARGIN[0], 0.0])


def test_a_base_without_a_gate_and_a_constraint_elsewhere_are_refused() -> None:
    with pytest.raises(ValueError, match=r"algorithm.base lmetric: is no rule for replicas with a gate; valid"):
        trial(base="lmetric")
    with pytest.raises(ValueError, match=r"algorithm.base fastest-idle: is no rule for replicas with a gate"):
        trial(base="fastest-idle")
    with pytest.raises(ValueError, match=r"algorithm.reference lmetric: is no rule for replicas with a gate"):
        trial(reference="lmetric")
    with pytest.raises(ValueError, match=r"algorithm.objective: release-index has one of its own"):
        trial(objective="response")
    with pytest.raises(ValueError, match=r"algorithm.base: adaptive-price has none"):
        TrialConfig.of("adaptive-price", algorithm={"base": BASE})
    with pytest.raises(ValueError, match=r"algorithm.reference: adaptive-price has none"):
        TrialConfig.of("adaptive-price", algorithm={"reference": BASE})


def test_sessions_are_drawn_over_their_range_and_nothing_else_is() -> None:
    drawn = trial(problems={"servers": (2,), "sessions": (8, 11)})
    instances = draw_instances(drawn, 8, TRAINING, 1)
    assert sorted(each.env.service.sessions for each in instances) == [8, 8, 9, 9, 10, 10, 11, 11]
    assert {each.env.cluster.num_servers for each in instances} == {2}
    with pytest.raises(ValueError, match=r"algorithm.problems: on env.service replica it draws servers and sessions"):
        trial(problems={"offered_load": (0.5, 0.9)})
    with pytest.raises(ValueError, match=r"sessions: low 9 is above high 8"):
        trial(problems={"sessions": (9, 8)})
    with pytest.raises(ValueError, match=r"env.service fixed: release holds calls.*valid: replica"):
        TrialConfig.of("release")
    with pytest.raises(ValueError, match=r"algorithm.problems.sessions: not with env.service fixed"):
        TrialConfig.of("scale", algorithm={"problems": {"sessions": (8, 9)}})
