"""The search of context-price: what it learns, that it goes on as if never stopped, and a whole short sweep of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from local_ray import LOCAL_RAY

pytest.importorskip("ray")
pytestmark = LOCAL_RAY

from rllib_scale.cli import main  # noqa: E402
from rllib_scale.config import CMAConfig, ProblemsConfig, TrainingConfig, TrialConfig, TrialResources, scenario  # noqa: E402
from rllib_scale.evaluation.candidates import Instance, Outcomes, play_base, play_candidates  # noqa: E402
from rllib_scale.evaluation.play import evaluate  # noqa: E402
from rllib_scale.policies.policy import load_policy  # noqa: E402
from rllib_scale.results.tables import EPISODE_COLUMNS, TRAINING_COLUMNS, read_table  # noqa: E402
from rllib_scale.schedulers.context_price import ContextPrice  # noqa: E402
from rllib_scale.schedulers.rules import make_scheduler  # noqa: E402
from rllib_scale.sweeps.evolution import TRAINING, VALIDATION, PriceSearch, draw_instances, scores, shares  # noqa: E402
from rllib_scale.workloads.generators import generate  # noqa: E402

ENV = scenario("steady-0.7").model_copy(
    update={"episode": scenario("steady-0.7").episode.model_copy(update={"horizon_s": 60.0, "arrivals_until_s": 20.0})}
)
TRIAL = TrialConfig(
    method="context-price",
    seed=5,
    env=ENV,
    training=TrainingConfig(problems=ProblemsConfig(servers=(4, 8), offered_load=(0.5, 1.1))),
    cma=CMAConfig(epochs=4, population=4, instances=2, validation_instances=3, validate_every=2),
)
TIMES = ("wall_s", "env_steps_per_s")


def lines(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """Rows of the training table without what is measured."""
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


@pytest.fixture(scope="module")
def whole() -> tuple[PriceSearch, list[dict[str, float]]]:
    """A search from its beginning to its end, and its rows."""
    search = PriceSearch(TRIAL)
    return search, [search.epoch(number) for number in (1, 2, 3, 4)]


def test_a_stopped_search_goes_on_bit_for_bit(
    whole: tuple[PriceSearch, list[dict[str, float]]], tmp_path: Path
) -> None:
    first, second = PriceSearch(TRIAL), PriceSearch(TRIAL)
    rows = [first.epoch(number) for number in (1, 2)]
    first.save(tmp_path)
    np.random.seed(1)  # noqa: NPY002  # nothing of a search is drawn from it
    second.load(tmp_path)
    rows += [second.epoch(number) for number in (3, 4)]
    pd.testing.assert_frame_equal(pd.DataFrame(lines(rows)), pd.DataFrame(lines(whole[1])), check_exact=True)
    assert second.best.tobytes() == whole[0].best.tobytes()
    assert second.best_score == whole[0].best_score


def test_what_is_tried_is_the_average_of_the_means_of_which_later_ones_count_more() -> None:
    trial = TRIAL.model_copy(update={"cma": TRIAL.cma.model_copy(update={"validate_every": 1})})
    search, tried = PriceSearch(trial), []
    means = []
    for number in range(1, 6):
        search.best_score = np.inf  # so that the last is the best
        search.epoch(number)
        means.append(np.array(search._strategy.mean))
        tried.append(search.best.ravel())
    # The g-th of five counts as g (g + 1) (g + 2), which is about g^3, but for a normalisation.
    counts = [g * (g + 1) * (g + 2) for g in range(1, 6)]
    np.testing.assert_allclose(tried[0], means[0])
    np.testing.assert_allclose(tried[-1], np.average(means, axis=0, weights=counts), rtol=1e-12)


@pytest.mark.slow
def test_a_search_that_begins_with_the_duals_steps_further_where_prices_are_large() -> None:
    cma = TRIAL.cma.model_copy(update={"initial": "dual-price"})
    here, agents = (
        PriceSearch(TRIAL.model_copy(update={"cma": cma, "env": scenario(name)}))
        for name in ("steady-0.7", "coding-agents-0.7")
    )
    assert here.best.shape == (8, 13)
    assert agents.best.shape == (9, 14)
    assert here._strategy.sigma_vec.scaling.max() == 1
    steps = np.asarray(agents._strategy.sigma_vec.scaling).reshape(agents.best.shape)
    largest = np.abs(agents.best).max(axis=1)
    np.testing.assert_allclose(steps[:, 0], np.maximum(1, largest / 10))
    assert largest.max() > 10


@pytest.mark.slow
def test_how_many_play_makes_no_difference(whole: tuple[PriceSearch, list[dict[str, float]]]) -> None:
    spread = PriceSearch(TRIAL.model_copy(update={"resources": TrialResources(env_runners=2)}))
    rows = [spread.epoch(number) for number in (1, 2, 3, 4)]
    pd.testing.assert_frame_equal(pd.DataFrame(lines(rows)), pd.DataFrame(lines(whole[1])), check_exact=True)
    assert spread.best.tobytes() == whole[0].best.tobytes()


def test_another_seed_is_another_search(whole: tuple[PriceSearch, list[dict[str, float]]]) -> None:
    row = PriceSearch(TRIAL.model_copy(update={"seed": 6})).epoch(1)
    assert row["objective"] != whole[1][0]["objective"]


def test_what_is_exported_did_best_in_validation(whole: tuple[PriceSearch, list[dict[str, float]]]) -> None:
    search, rows = whole
    tried = [row["objective_validation"] for row in rows]
    assert np.isnan(tried).tolist() == [True, False, True, False]
    instances = draw_instances(TRIAL, 3, VALIDATION)
    weights = [i.weight for i in instances]
    base = float(scores([play_base(i) for i in instances], "balanced", weights)[0])
    initial, best = (
        float(scores([play_candidates(w[None], search.speeds, i) for i in instances], "balanced", weights)[0]) - base
        for w in (PriceSearch(TRIAL).best, search.best)
    )
    assert best == search.best_score == min(initial, *(score for score in tried if not np.isnan(score)))


def test_a_search_lowers_its_objective_on_episodes_that_it_never_saw() -> None:
    wasteful = TRIAL.cma.initial.model_copy(
        update={"prices": (8.0, 30.0), "penalty": 0.01}
    )  # only the slow ones are free
    trial = TRIAL.model_copy(
        update={"cma": TRIAL.cma.model_copy(update={"initial": wasteful, "epochs": 12, "population": 8})}
    )
    search = PriceSearch(trial)
    initial = search.best
    for number in range(1, 13):
        search.epoch(number)
    instances = [Instance(ENV.at_scale(8), seed) for seed in range(8)]
    before, after = (
        float(scores([play_candidates(w[None], search.speeds, i) for i in instances], "response")[0])
        for w in (initial, search.best)
    )
    assert after < before - 0.02


def test_a_score_weighs_response_and_makespans() -> None:
    first = Outcomes(*np.array([[8.0, 10.0], [16.0, 20.0], [30.0, 40.0], [5, 5], [9, 9]]))
    second = Outcomes(*np.array([[2.0, 10.0], [16.0, 20.0], [30.0, 40.0], [5, 5], [9, 9]]))
    np.testing.assert_allclose(scores([first], "response"), [np.log(8), np.log(10)])
    np.testing.assert_allclose(scores([first, second], "response"), [np.log(4), np.log(10)])
    expected = [0.8 * np.log(8) + 0.1 * np.log(16) + 0.1 * np.log(30)]
    expected += [0.8 * np.log(10) + 0.1 * np.log(20) + 0.1 * np.log(40)]
    np.testing.assert_allclose(scores([first], "balanced"), expected)
    empty = Outcomes(*np.full((5, 2), np.nan))
    np.testing.assert_allclose(scores([first, empty], "balanced"), expected)
    np.testing.assert_allclose(
        scores([first, second], "response", [3, 1]), [0.75 * np.log(8) + 0.25 * np.log(2), np.log(10)]
    )
    with pytest.raises(RuntimeError, match="no task arrived"):
        scores([empty], "balanced")


def test_what_comes_of_a_candidate_is_what_an_evaluation_says() -> None:
    search = PriceSearch(TRIAL)
    env = ENV.at_scale(8)
    own = play_candidates(np.stack([search.best] * 2), search.speeds, Instance(env, 11))
    base = play_base(Instance(env, 11))
    for outcomes, player in (
        (own, ContextPrice(search.best, search.speeds)),
        (base, make_scheduler("fastest-idle", env.observation, "feasible")),
    ):
        (row,) = evaluate(player, env, 11, 1)
        assert row["unfinished"] == 0
        found = [(o.response_s[-1], o.makespan_s[-1], o.makespan_p95_s[-1]) for o in (outcomes,)]
        np.testing.assert_allclose(found, [[row["response_mean_s"], row["makespan_mean_s"], row["makespan_p95_s"]]])
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
    for k, many in enumerate(found):  # nobody who has more than the one that is everyone's would rather give it away
        if many > 1:
            assert all(
                weights[k] / many >= other / (has + 1) - 1e-12 for other, has in zip(weights, found, strict=True)
            )


def test_more_sizes_than_episodes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"cma\.instances 1: must be at least 2, one for each of training\.problems"):
        TrialConfig.model_validate(TRIAL.model_dump() | {"cma": {"instances": 1}})


# ---------------------------------------------------------------------- whole sweeps

SWEEP = """
name: tiny
scenario: steady-0.7
methods: [context-price]
seeds: [5]
env: {episode: {horizon_s: 60.0, arrivals_until_s: 20.0}}
training: {problems: {servers: [4, 8], offered_load: [0.5, 1.1]}}
cma: {epochs: 3, population: 4, instances: 2, validation_instances: 2, validate_every: 2}
resources: {env_runners: 1}
evaluation: {scales: [8], scenarios: [steady-0.7], episodes: 2, decisions: [argmax, sample]}
checkpoints: {every_epochs: 1}
"""


@pytest.mark.slow
def test_a_sweep_trains_exports_evaluates_and_reports_prices(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(SWEEP)
    results = tmp_path / "results"
    done = CliRunner().invoke(main, ["sweep", str(tmp_path / "tiny.yaml"), "--results", str(results)])
    assert done.exit_code == 0, done.output
    training = read_table(results / "training.parquet", TRAINING_COLUMNS)
    assert training["epoch"].tolist() == [1, 2, 3]
    assert training["env_steps"].is_monotonic_increasing
    assert training["objective_validation"].notna().tolist() == [False, True, True]
    for name in ("objective", "response_mean_s", "completed", "step_size", "wall_s"):
        assert training[name].notna().all(), name
    (folder,) = (results / "policies").iterdir()
    policy = load_policy(folder)
    episodes = read_table(results / "episodes.parquet", EPISODE_COLUMNS)
    own = episodes[episodes["method"] == "context-price"]
    assert own["decision"].tolist() == ["argmax"] * 2
    assert set(own["information"]) == {"clairvoyant"}
    expected = [row["response_mean_s"] for row in evaluate(policy, scenario("steady-0.7").at_scale(8), 1000, 2)]
    assert own["response_mean_s"].tolist() == expected
    assert "context-price" in (results / "report" / "report.html").read_text()


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ("scenario=paper", ["mask none", "context-price holds rows back", "valid: mask feasible"]),
        ("evaluation.scenarios=[paper]", ["evaluation.scenarios paper", "context-price holds rows back"]),
        ("stop.env_steps=100", ["stop.env_steps", "context-price", "of stop its epochs"]),
        ("search={scheduler: asha}", ["search.scheduler asha", "context-price has no env steps"]),
        ("training.time_unit_s=1", ["training.time_unit_s", "context-price"]),
        ("cma.population=2", ["cma.population", "greater than or equal to 4"]),
    ],
)
def test_what_cannot_be_searched_or_played_is_refused_before_anything_runs(
    tmp_path: Path, change: str, parts: list[str]
) -> None:
    (tmp_path / "tiny.yaml").write_text(SWEEP.replace("evaluation: {", "evaluation: {heuristics: [], "))
    arguments = [str(tmp_path / "tiny.yaml"), "--results", str(tmp_path / "results"), "--set", change]
    refused = CliRunner().invoke(main, ["sweep", *arguments])
    assert refused.exit_code == 2, refused.output
    (line,) = refused.stderr.splitlines()
    for part in parts:
        assert part in line
    assert not (tmp_path / "results").exists()
