"""The training of decima and deeprm: it goes on as if never stopped, exports what did best, and whole short sweeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner

from local_ray import LOCAL_RAY

pytest.importorskip("ray")
pytestmark = LOCAL_RAY

from rllib_scale.cli import main  # noqa: E402
from rllib_scale.config import ReinforceConfig, TrialConfig, TrialResources, scenario  # noqa: E402
from rllib_scale.evaluation.candidates import play_base  # noqa: E402
from rllib_scale.evaluation.play import evaluate  # noqa: E402
from rllib_scale.policies.dispatch_policy import DispatchPolicy, build_dispatch_network  # noqa: E402
from rllib_scale.policies.policy import load_policy  # noqa: E402
from rllib_scale.results.tables import EPISODE_COLUMNS, TRAINING_COLUMNS, read_table  # noqa: E402
from rllib_scale.sweeps.evolution import VALIDATION, draw_instances  # noqa: E402
from rllib_scale.sweeps.policy_gradient import PolicyGradient  # noqa: E402

STEADY = scenario("steady-0.7").at_scale(4)
ENV = STEADY.model_copy(
    update={"episode": STEADY.episode.model_copy(update={"horizon_s": 90.0, "arrivals_until_s": 30.0})}
)
SETTINGS = ReinforceConfig(
    epochs=4, instances=2, episodes=2, validation_instances=2, validate_every=2, learning_rate=0.01
)
TIMES = ("wall_s", "env_steps_per_s")
METHODS = ("decima", "deeprm")


def trial(method: str) -> TrialConfig:
    return TrialConfig(method=method, seed=5, env=ENV, reinforce=SETTINGS)


def lines(rows: list[dict[str, float]]) -> pd.DataFrame:
    """Rows of the training table without what is measured."""
    return pd.DataFrame([{name: value for name, value in row.items() if name not in TIMES} for row in rows])


def weights(training: PolicyGradient) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in training.network.state_dict().items()}


Whole = tuple[PolicyGradient, list[dict[str, float]]]


@pytest.fixture(scope="module", params=METHODS)
def whole(request: pytest.FixtureRequest) -> Whole:
    """A training from its beginning to its end, and its rows."""
    training = PolicyGradient(trial(request.param))
    return training, [training.epoch(number) for number in (1, 2, 3, 4)]


def test_a_stopped_training_goes_on_bit_for_bit(whole: Whole, tmp_path: Path) -> None:
    settings = whole[0].trial
    first, second = PolicyGradient(settings), PolicyGradient(settings)
    rows = [first.epoch(number) for number in (1, 2)]
    first.save(tmp_path)
    assert weights(first) != weights(second), "two epochs have changed something"
    torch.manual_seed(1)  # nothing of a training is drawn from these
    np.random.seed(1)  # noqa: NPY002
    second.load(tmp_path)
    rows += [second.epoch(number) for number in (3, 4)]
    pd.testing.assert_frame_equal(lines(rows), lines(whole[1]), check_exact=True)
    assert weights(second) == weights(whole[0])
    assert all(second.best[name].tobytes() == array.tobytes() for name, array in whole[0].best.items())
    assert second.best_score == whole[0].best_score


def test_how_many_play_makes_no_difference(whole: Whole) -> None:
    settings = whole[0].trial
    spread = PolicyGradient(settings.model_copy(update={"resources": TrialResources(env_runners=2)}))
    rows = [spread.epoch(number) for number in (1, 2)]
    pd.testing.assert_frame_equal(lines(rows), lines(whole[1][:2]), check_exact=True)


def test_another_seed_is_another_training(whole: Whole) -> None:
    row = PolicyGradient(whole[0].trial.model_copy(update={"seed": 6})).epoch(1)
    assert row["objective"] != whole[1][0]["objective"]


def test_an_epoch_s_step_is_no_longer_than_adam_s_and_clipped(whole: Whole) -> None:
    settings = whole[0].trial
    narrow = settings.model_copy(update={"reinforce": SETTINGS.model_copy(update={"gradient_clip": 1e-12})})
    training = PolicyGradient(narrow)
    before = {name: tensor.clone() for name, tensor in training.network.state_dict().items()}
    row = training.epoch(1)
    assert row["gradient_norm"] == whole[1][0]["gradient_norm"] > 1e-6
    moved = max(float((t - before[name]).abs().max()) for name, t in training.network.state_dict().items())
    assert moved < 1e-5, "clipped to less than what Adam adds to its denominator"


def test_what_is_exported_did_best_in_validation(whole: Whole, tmp_path: Path) -> None:
    training, rows = whole
    tried = [row["objective_validation"] for row in rows]
    assert np.isnan(tried).tolist() == [True, False, True, False]
    settings = training.trial
    untrained = DispatchPolicy(build_dispatch_network(settings), settings, 0)
    training.save_policy(tmp_path, 4)
    exported = load_policy(tmp_path)
    instances = draw_instances(settings, 2, VALIDATION)
    base = np.mean([np.log(play_base(i).response_s[0]) for i in instances])
    initial, best = (
        np.mean([np.log(evaluate(player, i.env, i.seed, 1)[0]["response_censored_s"]) for i in instances]) - base
        for player in (untrained, exported)
    )
    assert best == pytest.approx(training.best_score, abs=1e-12)
    assert best == pytest.approx(min(initial, *(score for score in tried if not np.isnan(score))), abs=1e-12)


# ---------------------------------------------------------------------- whole sweeps

SWEEP = """
name: tiny
scenario: steady-0.7
methods: [decima, deeprm]
seeds: [5]
env: {episode: {horizon_s: 90.0, arrivals_until_s: 30.0}, cluster: {servers: 4}}
reinforce: {epochs: 2, instances: 1, episodes: 2, validation_instances: 2, validate_every: 1}
resources: {env_runners: 1}
evaluation: {scales: [4, 8], scenarios: [train], episodes: 2, decisions: [argmax, sample], heuristics: [fastest-idle]}
checkpoints: {every_epochs: 1}
"""


@pytest.mark.slow
def test_a_sweep_trains_exports_evaluates_and_reports_both(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(SWEEP)
    results = tmp_path / "results"
    done = CliRunner().invoke(main, ["sweep", str(tmp_path / "tiny.yaml"), "--results", str(results)])
    assert done.exit_code == 0, done.output
    assert "deeprm: evaluated only at the number of servers trained on" in done.output
    training = read_table(results / "training.parquet", TRAINING_COLUMNS)
    episodes = read_table(results / "episodes.parquet", EPISODE_COLUMNS)
    assert not (results / "features.parquet").exists() or not len(pd.read_parquet(results / "features.parquet"))
    told = {"decima": "clairvoyant", "deeprm": "waiting tasks"}
    for method in METHODS:
        curve = training[training["method"] == method]
        assert curve["epoch"].tolist() == [1, 2]
        assert curve["env_steps"].is_monotonic_increasing
        for name in ("objective", "objective_validation", "response_mean_s", "entropy", "policy_loss", "gradient_norm"):
            assert curve[name].notna().all(), name
        (folder,) = (path for path in (results / "policies").iterdir() if path.name.startswith(method))
        own = episodes[episodes["method"] == method]
        assert set(own["information"]) == {told[method]}
        assert set(own["test_servers"]) == ({4, 8} if method == "decima" else {4})
        env = load_policy(folder).trial.env.with_part("test")
        for decision in ("argmax", "sample"):
            found = own[(own["decision"] == decision) & (own["test_servers"] == 4)]
            expected = [r["response_mean_s"] for r in evaluate(load_policy(folder, decision=decision), env, 1000, 2)]
            np.testing.assert_array_equal(found["response_mean_s"], expected)
        assert method in (results / "report" / "report.html").read_text()


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ("scenario=paper", ["mask none", "idle servers alone", "valid: mask feasible"]),
        ("evaluation.scenarios=[paper]", ["evaluation.scenarios paper", "decima starts tasks on idle servers alone"]),
        ("stop.env_steps=100", ["stop.env_steps", "decima, deeprm", "of stop its epochs"]),
        ("search={scheduler: asha}", ["search.scheduler asha"]),
        ("reinforce.episodes=1", ["reinforce.episodes", "greater than or equal to 2"]),
        ("reinforce.episode=4", ["reinforce", "episode", "episodes"]),
        ("deeprm.queue=0", ["deeprm.queue", "greater than or equal to 1"]),
        ("decima.hidden=[true]", ["decima.hidden", "number", "true"]),
    ],
)
def test_what_cannot_be_trained_or_played_is_refused_before_anything_runs(
    tmp_path: Path, change: str, parts: list[str]
) -> None:
    (tmp_path / "tiny.yaml").write_text(SWEEP.replace("heuristics: [fastest-idle]", "heuristics: []"))
    arguments = [str(tmp_path / "tiny.yaml"), "--results", str(tmp_path / "results"), "--set", change]
    refused = CliRunner().invoke(main, ["sweep", *arguments])
    assert refused.exit_code == 2, refused.output
    (line,) = refused.stderr.splitlines()
    for part in parts:
        assert part in line
    assert not (tmp_path / "results").exists()


def test_the_sweep_of_the_related_work_is_as_it_is_told() -> None:
    done = CliRunner().invoke(main, ["validate", "tune_configs/related_work.yaml"])
    assert done.exit_code == 0, done.output
    assert "2 trainings of 200 epochs" in done.output
