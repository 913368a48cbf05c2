"""What 0.3 wrote, in the form of this version: sweeps, policies, and results, of which no metric changes."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from rllib_scale.config import TrialConfig
from rllib_scale.errors import UserError
from rllib_scale.evaluation.replay import Replay
from rllib_scale.loading import load_sweep
from rllib_scale.networks.build import build_network
from rllib_scale.policies.policy import load_policy, save_policy
from rllib_scale.results import dataset
from rllib_scale.results.status import read_plan, trainings
from rllib_scale.results.storage import Location
from rllib_scale.sweeps.planning import make_plan
from sweep_runs import episodes, epochs, named, refused, succeed, training

FORMER = json.loads((Path(__file__).parent / "results_of_0_3.json").read_text(encoding="utf-8"))
"""Of analysis/studies/ablations/steady as 0.3 had it: a training and a rule on two problems, two episodes each."""
NAME = "scale-s42-5077df0fea73"


@pytest.fixture
def former(tmp_path: Path) -> Path:
    folder = tmp_path / "former"
    for table, rows in FORMER.items():
        if table != "manifest":
            (folder / table).mkdir(parents=True)
            pd.DataFrame(rows).to_parquet(folder / table / "part-000000-abcd.parquet")
    (folder / "manifest.json").write_text(json.dumps(FORMER["manifest"]))
    policy(folder / "policies" / NAME, FORMER["manifest"]["plan"]["trainings"][0]["trial"])
    return folder


def policy(folder: Path, trial: dict[str, Any]) -> None:
    """A policy as 0.3 described it, without training."""
    trained = TrialConfig.of("scale")
    save_policy(folder, build_network(trained), trained, epochs=300)
    description = json.loads((folder / "policy.json").read_text())
    described = {"version": 4, "trial": trial, "method": trial["method"], "seed": 42, "trial_id": NAME[-12:]}
    (folder / "policy.json").write_text(json.dumps(description | described))


def test_results_keep_their_metrics_and_are_as_if_this_version_had_made_them(former: Path, tmp_path: Path) -> None:
    said = succeed("convert", former, "--output", tmp_path / "new")
    home = Location(str(tmp_path / "new"))
    (trial,) = read_plan(home).trials
    assert said.split() == [NAME, ">", trial.name]
    (planned,) = make_plan(load_sweep(Path("tune_configs/steady.yaml"), ["methods=[scale]", "seeds=[42]"]), "").trials
    assert planned == trial
    for table in ("episodes", "features", "training"):
        old = pd.DataFrame(FORMER[table])
        new = named(dataset.read(home, table), home).rename(columns={"kind": "now"})
        shared = [name for name in old if name in new and name not in ("problem", "protocol", "unit")]
        assert {"method", "train_seed", "completed" if table != "features" else "drift_mmd2"} < {*shared}
        for name in shared:
            pairs = zip(new[name], old[name], strict=True)
            assert all(one == other or (pd.isna(one) and pd.isna(other)) for one, other in pairs), name
    assert {unit.key for unit in read_plan(home).units} == set(dataset.read(home, "episodes")["unit"])
    rule = episodes(home).query("method == 'fastest-idle' and episode == 1").iloc[-1]
    assert Replay(home).episode(rule).end_s == rule["duration_s"], "played again by the plan"
    assert [(found.name, found.state) for found in trainings(home, 0.0)] == [(trial.name, "finished")]
    assert epochs(home) == {42: [1, 2]}
    assert training(home)["completed"].tolist() == [21, 22]
    assert load_policy(tmp_path / "new" / "policies" / trial.name).trial == trial.config


def test_only_what_is_finished_and_of_0_3_is_converted(former: Path, tmp_path: Path) -> None:
    succeed("convert", former, "--output", tmp_path / "new")
    assert "results version 3" in refused("convert", tmp_path / "new", "--output", tmp_path / "again")
    assert "is there and not empty" in refused("convert", former, "--output", tmp_path / "new")
    begun = former / "trials" / "run-001" / "scale-s43-000000000000" / "checkpoint_000000"
    begun.mkdir(parents=True)
    with zipfile.ZipFile(begun / "epoch-000025.zip", "w") as archive:
        archive.writestr("contents.json", "{}")
    line = refused("convert", former, "--output", tmp_path / "other")
    assert "training scale-s43-000000000000 has not ended" in line
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "text", ["[1]", "seeds: [1]", "{methods: [scale], grid: [1]}", "methods: [{scale: {}}]", "methods: scale"]
)
def test_what_is_no_sweep_of_0_3_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(text)
    line = refused("convert", tmp_path / "sweep.yaml", "--output", tmp_path / "new.yaml")
    assert "not the YAML of a sweep of 0.3" in line


def test_settings_that_this_version_has_not_are_kept_and_make_another_training(former: Path, tmp_path: Path) -> None:
    trial = FORMER["manifest"]["plan"]["trainings"][0]
    shutil.rmtree(former / "trainings")  # as in what is published
    gone = trial["trial"] | {"algorithm": trial["trial"]["algorithm"] | {"former": 1}, "method": "scale-r"}
    for folder, own in (("same", trial["trial"]), ("other", gone)):
        plan = FORMER["manifest"]["plan"] | {"trainings": [trial | {"trial": own}]}
        (former / "manifest.json").write_text(json.dumps(FORMER["manifest"] | {"plan": plan}))
        succeed("convert", former, "--output", tmp_path / folder)
    rows = [dataset.read(Location(str(tmp_path / name)), "schedulers") for name in ("same", "other")]
    one, other = (frame[frame["kind"] == "training"].iloc[0] for frame in rows)
    assert one["scheduler"] != other["scheduler"]
    settings = json.loads(other["settings"])
    assert settings["algorithm"].pop("former") == 1
    assert settings == json.loads(one["settings"])


SWEEPS = [
    (
        "methods: [scale, ppo]\ntraining: {epochs: 2}\nppo: {gamma: 0.9}\ngrid: {training.learning_rate: [1.0e-3]}",
        "methods: [scale, ppo]\nalgorithm: {epochs: 2, gamma: 0.9}\ngrid: {algorithm.learning_rate: [1.0e-3]}",
    ),
    (
        "methods: [context-price, decima]\ncma: {population: 8}\nreinforce: {instances: 4}\ndecima: {embedding_dim: 8}",
        "methods: [context-price: {algorithm: {population: 8}}, "
        "decima: {algorithm: {instances: 4}, network: {embedding_dim: 8}}]",
    ),
    (
        "methods: [crossattn]\nimitation: {expert: fastest-idle, episodes: 4}\nppo: {gamma: 0.9}",
        "methods: [crossattn]\nalgorithm: {name: imitation, expert: fastest-idle, episodes: 4}",
    ),
    (
        "methods: [deepsets]\nsrr: {lambda_kl: 0.5}\nsearch: {samples: 2, space: {ppo.gamma: {choice: [0.9, 0.99]}}}",
        "methods: [deepsets]\nsearch: {samples: 2, space: {algorithm.gamma: {choice: [0.9, 0.99]}}}",
    ),
]


@pytest.mark.parametrize(("former", "now"), SWEEPS)
def test_a_sweep_of_0_3_has_the_shape_of_a_trial(former: str, now: str, tmp_path: Path) -> None:
    (tmp_path / "former.yaml").write_text(f"name: x\nscenario: steady-0.7\n{former}")
    succeed("convert", tmp_path / "former.yaml", "--output", tmp_path / "now.yaml")
    (tmp_path / "wanted.yaml").write_text(f"name: x\nscenario: steady-0.7\n{now}")
    one, other = (load_sweep(tmp_path / f"{name}.yaml") for name in ("now", "wanted"))
    assert make_plan(one, "").trials == make_plan(other, "").trials
    with pytest.raises(UserError):
        load_sweep(tmp_path / "former.yaml")
    assert yaml.safe_load((tmp_path / "now.yaml").read_text())["scenario"] == "steady-0.7"
