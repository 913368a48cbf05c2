"""The search of context-price: what it tries, on which episodes, by which score."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_ray import LOCAL_RAY

pytest.importorskip("ray")
pytestmark = LOCAL_RAY

from rllib_scale.config import TrialConfig, scenario  # noqa: E402
from rllib_scale.evaluation.candidates import Instance, Outcomes, outcomes_of, play_base  # noqa: E402
from rllib_scale.evaluation.play import evaluate  # noqa: E402
from rllib_scale.schedulers.context_price import ContextPrice  # noqa: E402
from rllib_scale.schedulers.rules import make_scheduler  # noqa: E402
from rllib_scale.sweeps.evolution import PriceSearch  # noqa: E402
from rllib_scale.sweeps.validated import TRAINING, VALIDATION, draw_instances, scores, shares  # noqa: E402
from rllib_scale.workloads.generators import generate  # noqa: E402

ENV = scenario("steady-0.7").model_copy(
    update={"episode": scenario("steady-0.7").episode.model_copy(update={"horizon_s": 60.0, "arrivals_until_s": 20.0})}
)
TRIAL = TrialConfig.of(
    method="context-price",
    seed=5,
    env=ENV,
    algorithm={
        **{"problems": {"servers": (4, 8), "offered_load": (0.5, 1.1)}, "validation_instances": 3},
        **{"epochs": 4, "population": 4, "instances": 2, "validate_every": 2},
    },
)


def changed(**cma: object) -> TrialConfig:
    """The trial with other settings of its search."""
    return TRIAL.model_copy(update={"algorithm": TRIAL.algorithm.model_copy(update=cma)})


def test_what_is_tried_is_the_average_of_the_means_of_which_later_ones_count_more() -> None:
    search, tried = PriceSearch(changed(validate_every=1)), []
    means = []
    for number in range(1, 6):
        search.best_score = np.inf  # so that the last is the best
        search.epoch(number)
        means.append(np.array(search.inner.algorithm.update.mean))
        tried.append(search.best.ravel())
    # The g-th of five counts as g (g + 1) (g + 2), which is about g^3, but for a normalisation.
    counts = [g * (g + 1) * (g + 2) for g in range(1, 6)]
    np.testing.assert_allclose(tried[0], means[0])
    np.testing.assert_allclose(tried[-1], np.average(means, axis=0, weights=counts), rtol=1e-12)


def test_a_search_lowers_its_objective_on_episodes_that_it_never_saw() -> None:
    only_the_slow_are_free = TRIAL.algorithm.initial.model_copy(update={"prices": (8.0, 30.0), "penalty": 0.01})
    search = PriceSearch(changed(initial=only_the_slow_are_free, epochs=12, population=8))
    initial = search.best
    for number in range(1, 13):
        search.epoch(number)
    instances = [Instance(ENV.at_scale(8), seed) for seed in range(8)]
    before, after = (float(scores(search.play_validation(w, instances), "response")[0]) for w in (initial, search.best))
    assert after < before - 0.02


def test_a_score_weighs_response_and_makespans() -> None:
    first = Outcomes(*np.array([[8.0, 10.0], [16.0, 20.0], [30.0, 40.0], [5, 5], [9, 9]]))
    second = Outcomes(*np.array([[2.0, 10.0], [16.0, 20.0], [30.0, 40.0], [5, 5], [9, 9]]))
    np.testing.assert_allclose(scores([first], "response"), [np.log(8), np.log(10)])
    np.testing.assert_allclose(scores([first, second], "response"), [np.log(4), np.log(10)])
    expected = [0.8 * np.log(a) + 0.1 * np.log(b) + 0.1 * np.log(c) for a, b, c in ((8, 16, 30), (10, 20, 40))]
    np.testing.assert_allclose(scores([first], "balanced"), expected)
    empty = Outcomes(*np.full((5, 2), np.nan))
    np.testing.assert_allclose(scores([first, empty], "balanced"), expected)
    uneven = scores([first, second], "response", [3, 1])
    np.testing.assert_allclose(uneven, [0.75 * np.log(8) + 0.25 * np.log(2), np.log(10)])
    with pytest.raises(RuntimeError, match="no task arrived"):
        scores([empty], "balanced")


def test_what_comes_of_a_candidate_is_what_an_evaluation_says() -> None:
    search = PriceSearch(TRIAL)
    env = ENV.at_scale(8)
    speeds = search.search.named(search.best)["speeds"]
    twice = ContextPrice(np.stack([search.best] * 2), speeds)
    own = outcomes_of(twice, 2, Instance(env, 11))
    base = play_base(Instance(env, 11))
    for outcomes, player in (
        (own, ContextPrice(search.best, speeds)),
        (base, make_scheduler("fastest-idle", env.observation, "feasible")),
    ):
        (row,) = evaluate(player, env, 11, 1)
        assert row["unfinished"] == 0
        found = [values[-1] for values in (outcomes.response_s, outcomes.makespan_s, outcomes.tail_s)]
        np.testing.assert_allclose(found, [row["response_mean_s"], row["jct_mean_s"], row["jct_p95_s"]])
    assert len(own.response_s) == 2
    assert own.response_s[0] == own.response_s[1] != base.response_s[0]


def test_no_two_episodes_of_training_validation_and_evaluation_share_a_draw() -> None:
    instances = draw_instances(TRIAL, 32, VALIDATION)
    for seed in (5, 6):
        trial = TRIAL.model_copy(update={"seed": seed})
        instances += [i for generation in range(1, 20) for i in draw_instances(trial, 12, TRAINING, generation)]
    seeds = [instance.seed for instance in instances]
    assert len(set(seeds)) == len(seeds)
    assert min(seeds) > 2**32, "none that a person writes down"
    env = ENV.at_scale(8)
    drawn = [generate(env, seed, 0) for seed in seeds[:100]] + [generate(env, 1000, episode) for episode in range(30)]
    for of_all in (np.concatenate([w.compute_gflop for w in drawn]), np.concatenate([w.arrival_s for w in drawn])):
        assert len(np.unique(of_all)) == len(of_all)


def test_loads_are_spread_evenly_and_a_size_has_episodes_by_what_they_cost() -> None:
    first, second = (draw_instances(TRIAL, 12, TRAINING, generation) for generation in (1, 2))
    for instances in (first, second):
        assert sorted(i.env.cluster.num_servers for i in instances) == [4] * 8 + [8] * 4
        weight_of = {4: 1 / 16, 8: 1 / 8}
        assert [i.weight for i in instances] == [weight_of[i.env.cluster.num_servers] for i in instances]
        loads = sorted(i.env.workload.offered_load or 0 for i in instances)
        bins = np.floor((np.array(loads) - 0.5) / 0.6 * 12)
        assert bins.tolist() == list(range(12))
    assert not {i.seed for i in first} & {i.seed for i in second}


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=6), st.integers(0, 40))
def test_shares_add_up_and_are_nearest_to_the_proportion(weights: list[float], more: int) -> None:
    found = shares(len(weights) + more, weights)
    assert sum(found) == len(weights) + more
    assert min(found) >= 1
    owed = [weight / (has + 1) for weight, has in zip(weights, found, strict=True)]
    for weight, has in zip(weights, found, strict=True):
        assert has == 1 or weight / has >= max(owed) - 1e-12, "nobody else would make better use of the last one"
