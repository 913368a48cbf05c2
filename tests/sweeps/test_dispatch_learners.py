"""What trains context-price, decima and deeprm: it resumes as if never stopped and exports what did best; sweeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from local_ray import LOCAL_RAY

pytest.importorskip("ray")
pytestmark = LOCAL_RAY

from rllib_scale.config import (  # noqa: E402
    TrialConfig,
    scenario,
)
from rllib_scale.config.training import TrialResources  # noqa: E402
from rllib_scale.evaluation.candidates import play_base  # noqa: E402
from rllib_scale.evaluation.play import evaluate  # noqa: E402
from rllib_scale.policies.dispatch_policy import DispatchPolicy, build_dispatch_network  # noqa: E402
from rllib_scale.policies.policy import load_policy  # noqa: E402
from rllib_scale.sweeps.evolution import PriceSearch  # noqa: E402
from rllib_scale.sweeps.policy_gradient import PolicyGradient  # noqa: E402
from rllib_scale.sweeps.validated import VALIDATION, draw_instances, scores  # noqa: E402
from sweep_runs import episodes, features, refused, succeed, training  # noqa: E402

STEADY = scenario("steady-0.7").at_scale(4)
SHORT = STEADY.episode.model_copy(update={"horizon_s": 90.0, "arrivals_until_s": 30.0})
ENV = STEADY.model_copy(update={"episode": SHORT})
SEARCH = {"epochs": 4, "population": 4, "instances": 2, "validation_instances": 3, "validate_every": 2}
SEARCH |= {"problems": {"servers": (4, 8), "offered_load": (0.5, 1.1)}}
GRADIENT = {"epochs": 4, "instances": 2, "episodes": 2, "validation_instances": 2, "validate_every": 2}
GRADIENT |= {"learning_rate": 0.01}
NETWORKS = ("decima", "deeprm")
Learner = PriceSearch | PolicyGradient
Whole = tuple[Learner, pd.DataFrame]


def make(trial: TrialConfig, **changed: object) -> Learner:
    trial = trial.model_copy(update=changed)
    return PriceSearch(trial) if trial.method == "context-price" else PolicyGradient(trial)


def play(learner: Learner, *numbers: int) -> pd.DataFrame:
    """Rows of the training table without what is measured."""
    return pd.DataFrame([learner.epoch(n) for n in numbers]).drop(columns=["wall_s", "env_steps_per_s"])


def exported(learner: Learner, folder: Path) -> bytes:
    """The weights of its policy."""
    learner.save_policy(folder, 4)
    return (folder / "policy.safetensors").read_bytes()


@pytest.fixture(scope="module", params=["context-price", *NETWORKS])
def whole(request: pytest.FixtureRequest) -> Whole:
    """A training from its beginning to its end, and its rows."""
    algorithm = SEARCH if request.param == "context-price" else GRADIENT
    learner = make(TrialConfig.of(request.param, seed=5, env=ENV, algorithm=algorithm))
    return learner, play(learner, 1, 2, 3, 4)


def test_a_stopped_training_goes_on_bit_for_bit(whole: Whole, tmp_path: Path) -> None:
    learner, rows = whole
    first, second = make(learner.trial), make(learner.trial)
    early = play(first, 1, 2)
    first.save(tmp_path)
    torch.manual_seed(1)  # nothing of a training is drawn from these
    np.random.seed(1)  # noqa: NPY002
    second.load(tmp_path)
    resumed = pd.concat([early, play(second, 3, 4)], ignore_index=True)
    pd.testing.assert_frame_equal(resumed, rows, check_exact=True)
    assert exported(second, tmp_path / "second") == exported(learner, tmp_path / "whole")
    assert second.best_score == learner.best_score
    other = play(make(learner.trial, seed=6), 1)
    assert other["objective"][0] != rows["objective"][0]


def test_how_many_play_makes_no_difference(whole: Whole) -> None:
    learner, rows = whole
    spread = make(learner.trial, resources=TrialResources(env_runners=2))
    pd.testing.assert_frame_equal(play(spread, 1, 2), rows[:2], check_exact=True)


@pytest.mark.parametrize("whole", NETWORKS, indirect=True)
def test_an_epoch_s_step_is_no_longer_than_adam_s_and_clipped(whole: Whole) -> None:
    settings = whole[0].trial
    narrow = PolicyGradient(
        settings.model_copy(update={"algorithm": settings.algorithm.model_copy(update={"gradient_clip": 1e-12})})
    )
    before = {name: tensor.clone() for name, tensor in narrow.network.state_dict().items()}
    assert narrow.epoch(1)["gradient_norm"] == whole[1]["gradient_norm"][0] > 1e-6
    moved = max(float((t - before[name]).abs().max()) for name, t in narrow.network.state_dict().items())
    assert 0 < moved < 1e-5, "clipped to less than what Adam adds to its denominator"


@pytest.mark.parametrize("whole", NETWORKS, indirect=True)
def test_the_exported_network_did_best_in_validation(whole: Whole, tmp_path: Path) -> None:
    learner, rows = whole
    tried = rows["objective_validation"]
    assert tried.isna().tolist() == [True, False, True, False]
    settings = learner.trial
    untrained = DispatchPolicy(build_dispatch_network(settings), settings, 0)
    learner.save_policy(tmp_path, 4)
    instances = draw_instances(settings, 2, VALIDATION)
    base = np.mean([np.log(play_base(i).response_s[0]) for i in instances])
    initial, best = (
        np.mean([np.log(evaluate(player, i.env, i.seed, 1)[0]["response_censored_s"]) for i in instances]) - base
        for player in (untrained, load_policy(tmp_path))
    )
    assert [best, best] == pytest.approx([learner.best_score, min(initial, *tried.dropna())], abs=1e-12)


@pytest.mark.parametrize("whole", ["context-price"], indirect=True)
def test_the_exported_prices_did_best_in_validation(whole: Whole) -> None:
    search, rows = whole
    tried = rows["objective_validation"]
    assert tried.isna().tolist() == [True, False, True, False]
    instances = draw_instances(search.trial, 3, VALIDATION)
    weights = [i.weight for i in instances]
    base = float(scores([play_base(i) for i in instances], "balanced", weights)[0])
    initial, best = (
        float(scores(search.play_validation(w, instances), "balanced", weights)[0]) - base
        for w in (PriceSearch(search.trial).best, search.best)
    )
    assert best == search.best_score == min(initial, *tried.dropna())


SWEEP = """
name: tiny
scenario: steady-0.7
methods:
  - context-price: {algorithm: {population: 4, instances: 2}}
  - decima: {algorithm: {instances: 1, episodes: 2}}
  - deeprm: {algorithm: {instances: 1, episodes: 2}}
seeds: [5]
env: {episode: {horizon_s: 90.0, arrivals_until_s: 30.0}, cluster: {servers: 4}}
algorithm: {epochs: 2, validation_instances: 2, validate_every: 1}
resources: {env_runners: 1}
evaluation: {scales: [4, 8], scenarios: [train], episodes: 2, decisions: [argmax, sample], heuristics: [fastest-idle]}
checkpoints: {every_epochs: 1}
"""
OF_REINFORCE = ["entropy", "policy_loss", "gradient_norm"]


@pytest.mark.slow
def test_a_sweep_trains_exports_evaluates_and_reports_them(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(SWEEP)
    results = tmp_path / "results"
    said = succeed("sweep", tmp_path / "tiny.yaml", "--results", results)
    assert "deeprm: evaluated only at the number of servers trained on" in said
    assert features(results).empty
    for method, told, scales, decisions, columns in (
        ("context-price", "clairvoyant", {4, 8}, ["argmax"], ["step_size"]),
        ("decima", "clairvoyant", {4, 8}, ["argmax", "sample"], OF_REINFORCE),
        ("deeprm", "waiting tasks", {4}, ["argmax", "sample"], OF_REINFORCE),
    ):
        curve = training(results).query(f"method == '{method}'")
        assert curve["epoch"].tolist() == [1, 2]
        assert curve["env_steps"].is_monotonic_increasing
        assert curve[["objective", "objective_validation", "response_mean_s", *columns]].notna().all(axis=None)
        (folder,) = (results / "policies").glob(f"{method}-*")
        own = episodes(results).query(f"method == '{method}'")
        assert set(own["observability"]) == {told}
        assert set(own["test_servers"]) == scales
        assert sorted(set(own["decision"])) == decisions
        env = load_policy(folder).trial.env.with_part("test")
        for decision in decisions:
            found = own[(own["decision"] == decision) & (own["test_servers"] == 4)]
            expected = [r["response_mean_s"] for r in evaluate(load_policy(folder, decision=decision), env, 1000, 2)]
            np.testing.assert_array_equal(found["response_mean_s"], expected)
        assert method in (results / "report" / "report.html").read_text()


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("scenario=paper", ["mask none", "context-price decides for all waiting tasks", "valid: mask feasible"]),
        ("evaluation.scenarios=[paper]", ["evaluation.scenarios paper", "context-price decides for all waiting tasks"]),
        ("search={scheduler: asha}", ["search.scheduler asha", "context-price has no env steps"]),
        ("stop.env_steps=100", ["stop.env_steps 100", "plays whole episodes; valid: stop.epochs"]),
        (
            "algorithm.problems.servers=[4, 8, 16]",
            ["algorithm.validation_instances 2: must be at least 3, one for each of algorithm.problems.servers"],
        ),
    ],
)
def test_what_cannot_be_searched_or_played_is_refused_before_anything_runs(
    tmp_path: Path, setting: str, parts: list[str]
) -> None:
    (tmp_path / "tiny.yaml").write_text(SWEEP)
    words = ["sweep", tmp_path / "tiny.yaml", "--results", tmp_path / "results"]
    line = refused(*words, settings=["methods=[context-price]", setting])
    assert all(part in line for part in parts), line
    assert not (tmp_path / "results").exists()
