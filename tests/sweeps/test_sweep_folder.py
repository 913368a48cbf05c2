"""A results folder that is used again: which settings may differ, which rows stay, and what is best in training."""

from __future__ import annotations

import itertools
import os
import stat
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rllib_scale.config.plan import Trial
from rllib_scale.errors import UserError
from rllib_scale.files import write_json
from rllib_scale.loading import sweep_from
from rllib_scale.results.columns import EPISODE_KEY
from rllib_scale.results.dataset import read
from rllib_scale.results.lock import held
from rllib_scale.results.storage import Location
from rllib_scale.sweeps.checkpoints import Checkpoint, newest_in, writing
from rllib_scale.sweeps.planning import make_plan
from rllib_scale.sweeps.sweep import Sweep
from s3_server import s3_server
from sweep_runs import named, refused, run, training

CLIPS = {"samples": 2, "space": {"algorithm.clip": {"uniform": [0.1, 0.3]}}}
HEURISTICS = {"evaluation": {"scales": [8], "episodes": 2, "heuristics": ["fastest-idle"]}}


def planned(folder: Path | Location, **data: Any) -> Sweep:
    """A sweep that is open in the folder."""
    sweep = Sweep(make_plan(sweep_from({"name": "x", "methods": [], **data}, "x.yaml"), "x.yaml"), folder, print)
    sweep.open()
    return sweep


def opened(folder: Path, **data: Any) -> Sweep:
    """A sweep in the folder whose trainings and evaluations are all done."""
    sweep = planned(folder, **data)
    for trial in sweep.trials:
        if not sweep.is_finished(trial):
            assert sweep.publish(trial, checkpoint_of(sweep, trial))
    for unit in sweep.plan.units:
        if not sweep.is_evaluated(unit):
            sweep.add_rows(unit, [{"episode": episode} for episode in range(unit.episodes)], {})
    sweep.close()
    return sweep


def checkpoint_of(sweep: Sweep, trial: Trial, epochs: int | None = None, **more: Any) -> Checkpoint | None:
    """The checkpoint of a training, at its end by default; its policy has no weights.

    `more` is in each row of its curve.
    """
    epochs = epochs or trial.config.stop_epochs
    place = sweep.home / "trials" / "run-001" / trial.name / "checkpoint_000000"
    rate = trial.config.algorithm.learning_rate
    rows = [{"epoch": epoch, "episode_return": rate * epoch, "env_steps": epoch, **more} for epoch in (1, 2)]
    with place.writing() as folder, writing(folder, epochs) as content:
        write_json(content / "curve.json", rows)
        trained = trial.config.changed(more.get("settings", {})).model_dump(mode="json")
        described = {"epochs": epochs, "trial": trained}
        write_json(content / "policy" / "policy.json", described)
        (content / "policy" / "policy.safetensors").touch()
    return newest_in(place)


def episodes(folder: Path) -> pd.DataFrame:
    """Its rows, of which no key stands twice in the parts either."""
    home = Location(str(folder))
    table = read(home, "episodes").sort_values([*EPISODE_KEY], ignore_index=True)
    assert len(read(home, "episodes", ["unit"])) == len(table)
    return named(table, folder)


def test_rows_of_an_earlier_config_stay(tmp_path: Path) -> None:
    one = {"methods": ["scale"], "seeds": [1], "algorithm": {"epochs": 2}}
    opened(tmp_path, **one, **HEURISTICS)
    before = episodes(tmp_path)
    other = one | {"seeds": [2], "grid": {"srr.lambda_kl": [0.5]}}
    opened(tmp_path, **other, evaluation={"scales": [16], "episodes": 2, "heuristics": ["random-feasible"]})
    both = episodes(tmp_path)
    assert len(both) == 2 * len(before)
    assert set(both["method"]) == {"scale", "fastest-idle", "random-feasible"}
    assert sorted(training(tmp_path)["train_seed"]) == [1, 1, 2, 2]
    assert planned(tmp_path, **one, **HEURISTICS).is_complete()
    assert episodes(tmp_path).equals(both)


def test_more_seeds_scales_and_episodes_are_added_without_training_again(tmp_path: Path) -> None:
    one = {"methods": ["scale"], "seeds": [1], "algorithm": {"epochs": 2}}
    opened(tmp_path, **one, **HEURISTICS)
    more = {"scales": [8, 16], "episodes": 3, "heuristics": ["fastest-idle"]}
    sweep = planned(tmp_path, **one | {"seeds": [1, 2]}, evaluation=more)
    assert [sweep.is_finished(trial) for trial in sweep.trials] == [True, False]
    opened(tmp_path, **one | {"seeds": [1, 2]}, evaluation=more)
    rows = named(read(Location(str(tmp_path)), "episodes"), tmp_path)
    assert rows.groupby(["method", "test_servers"]).size().to_dict() == {
        ("fastest-idle", 8): 3,
        ("fastest-idle", 16): 3,
        ("scale", 16): 6,
        ("scale", 8): 6,
    }


def test_a_torn_policy_is_published_again_from_its_checkpoint(tmp_path: Path) -> None:
    """A crash may leave an empty file, where the disk had not written it yet."""
    one = {"methods": ["scale"], "seeds": [1, 2], "algorithm": {"epochs": 2}}
    first, second = opened(tmp_path, **one).trials
    description = tmp_path / "policies" / first.name / "policy.json"
    whole = description.read_bytes()
    for torn in (b"", whole[:-5]):
        description.write_bytes(torn)
        sweep = planned(tmp_path, **one)
        assert (sweep.is_finished(first), sweep.is_finished(second)) == (False, True)
        assert sweep.publish(first, newest_in(sweep.tune_folder / "run-001" / first.name))
        assert description.read_bytes() == whole
        sweep.close()
    assert len(training(tmp_path)) == 4


def test_a_policy_whose_files_break_off_is_not_finished_before_both_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = {"methods": ["scale"], "seeds": [1], "algorithm": {"epochs": 2}}
    sweep = planned(tmp_path, **one)
    (trial,) = sweep.trials
    checkpoint = checkpoint_of(sweep, trial)
    write = Location.write
    for broken in ("policy.safetensors", "policy.json", "trainings"):

        def breaks(self: Location, content: bytes, broken: str = broken) -> None:
            if f"/{broken}" in str(self):
                raise UserError("No space left on device")
            write(self, content)

        monkeypatch.setattr(Location, "write", breaks)
        with pytest.raises(UserError, match="No space left"):
            _ = sweep.publish(trial, checkpoint), sweep.close()
        monkeypatch.setattr(Location, "write", write)
        sweep = planned(tmp_path, **one)
        assert not sweep.is_finished(trial)
    assert sweep.publish(trial, checkpoint)
    sweep.close()
    assert planned(tmp_path, **one).is_finished(trial)
    assert training(tmp_path)["epoch"].tolist() == [1, 2]


def test_finished_trainings_of_other_results_are_reused(tmp_path: Path) -> None:
    one = {"methods": ["scale"], "algorithm": {"epochs": 2}}
    opened(tmp_path / "one", seeds=[1, 2], **one)
    with s3_server() as bucket:
        places = [Location(str(tmp_path / "one")), Location(bucket % "two"), Location(str(tmp_path / "three"))]
        for source, home in itertools.pairwise(places):
            sweep = planned(home, seeds=[2, 3], **one)
            assert sweep.reuse([source]) == 1
            assert [sweep.is_finished(trial) for trial in sweep.trials] == [True, False]
            assert training(home)["epoch"].tolist() == [1, 2]
            assert [sweep.is_finished(trial) for trial in planned(home, seeds=[2, 3], **one).trials] == [True, False]


def test_a_training_before_its_end_is_not_published_and_a_stopped_one_is_not_reused_as_a_whole_one(
    tmp_path: Path,
) -> None:
    one = {"methods": ["scale"], "algorithm": {"epochs": 2}}
    sweep = planned(tmp_path / "one", **one)
    (trial,) = sweep.trials
    early = checkpoint_of(sweep, trial, epochs=1)
    assert not sweep.publish(trial, early)
    assert not sweep.is_finished(trial)
    assert not (tmp_path / "one" / "policies").exists()
    sweep.note_stop(trial.name, 1)  # by ASHA
    assert sweep.publish(trial, early)
    sweep.close()
    other = planned(tmp_path / "other", **one)
    assert other.reuse([sweep.home]) == 0
    assert not other.is_finished(trial)


@pytest.mark.parametrize(
    "changed",
    [
        {"algorithm": {"epochs": 3}},
        {"scenario": "steady-0.7"},
        {"env": {"cluster": {"bandwidth_gb_s": 5.0}}},
        {"resources": {"env_runners": 1}},
        {"srr": {"reduction": "mean"}},
        {"search": {"scheduler": "pbt", "pbt": {"interval_steps": 1024}, **CLIPS}},
    ],
)
def test_rows_of_other_settings_stand_beside_the_earlier_ones(tmp_path: Path, changed: dict[str, Any]) -> None:
    """Every training is done anew, and no row of one has the id of the other."""
    one = {"methods": ["scale"], "algorithm": {"epochs": 2}, **HEURISTICS}
    opened(tmp_path, **one)
    before, trained = episodes(tmp_path), training(tmp_path)
    other = planned(tmp_path, **one | changed)
    assert not any(map(other.is_finished, other.trials))
    opened(tmp_path, **one | changed)
    after, also = episodes(tmp_path), training(tmp_path)
    assert len(after[["scheduler", "problem"]].drop_duplicates()) > len(
        before[["scheduler", "problem"]].drop_duplicates()
    )
    assert before.merge(after, how="inner").shape[0] == len(before)
    assert set(trained["scheduler"]) < set(also["scheduler"])
    assert planned(tmp_path, **one).is_complete()


def test_a_member_of_another_population_is_another_training(tmp_path: Path) -> None:
    space = {"algorithm.gamma": {"uniform": [0.9, 0.99]}}
    search = {"scheduler": "pbt", "samples": 2, "space": space}
    opened(tmp_path, methods=["crossattn"], search=search)
    for changed in (
        {"search": search | {"samples": 4}},
        {"search": search, "seeds": [1]},
        {"search": {"space": space}},
    ):
        sweep = planned(tmp_path, methods=["crossattn"], **changed)
        assert not any(map(sweep.is_finished, sweep.trials))


def test_two_sweeps_in_one_folder_at_a_time_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("{name: x, methods: [scale]}")
    with held(tmp_path / "results", beat_s=0.2):
        line = refused("sweep", tmp_path / "x.yaml", "--results", tmp_path / "results")
    assert line.startswith(f"Error: {tmp_path / 'results'}: another sweep runs there")
    assert not [*(tmp_path / "results").iterdir()]


def test_files_have_the_mode_that_the_umask_permits(tmp_path: Path) -> None:
    earlier = os.umask(0o027)
    try:
        opened(tmp_path, **HEURISTICS)
    finally:
        os.umask(earlier)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {stat.filemode(path.stat().st_mode) for path in files} == {"-rw-r-----"}


def test_a_sweep_in_a_deleted_working_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.yaml").write_text("{name: x, methods: [scale]}")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for results in ("results", tmp_path / "results"):
        assert "the working folder is gone" in refused("sweep", tmp_path / "x.yaml", "--results", results)


def test_train_names_its_folder_by_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for scenario in ("paper", "steady-0.7"):
        options = ["--epochs", 2, "--scenario", scenario, "--results", tmp_path / "file" / "below"]
        done = run("train", *options)
        assert f"train-scale-{scenario}-s42-e2: 1 training" in done.output.replace("\n", " ")


def test_the_best_is_named_after_a_search_in_one_problem(tmp_path: Path) -> None:
    rates = {"algorithm.learning_rate": [1e-4, 1e-3]}
    chosen = {"space": {"algorithm.learning_rate": {"choice": [1e-4, 1e-3]}}, "samples": 8}
    best = opened(tmp_path / "search", methods=["crossattn"], search=chosen).best()
    assert best is not None
    assert best.startswith("best in training: crossattn, algorithm.learning_rate=0.001: episode_return 0.0015")
    asha = {"scheduler": "asha", "asha": {"grace_steps": 1024}}
    assert opened(tmp_path / "asha", methods=["crossattn"], grid=rates, search=asha).best()
    assert opened(tmp_path / "grid", methods=["crossattn"], grid=rates).best() is None
    problems = {"space": {**chosen["space"], "env.episode.horizon_s": {"choice": [5.0, 12.0]}}, "samples": 8}
    assert opened(tmp_path / "problems", methods=["crossattn"], search=problems).best() is None


def test_ties_are_named_and_of_a_population_the_settings_at_its_end(tmp_path: Path) -> None:
    """These curves score by the learning rate alone."""
    tied = {"algorithm.gamma": {"uniform": [0.9, 0.99]}}
    best = opened(tmp_path / "ties", methods=["crossattn"], search={"space": tied, "samples": 6}).best()
    assert best is not None
    assert best.startswith("best in training, a tie of 6 settings: crossattn, algorithm.gamma=0.")
    assert "; 2 more: episode_return" in best
    population = {"scheduler": "pbt", "space": {"algorithm.learning_rate": {"uniform": [1e-4, 1e-3]}}, "samples": 2}
    sweep = planned(tmp_path / "pbt", methods=["crossattn"], search=population)
    worse, better = sorted(sweep.trials, key=lambda trial: trial.config.algorithm.learning_rate)
    for trial, last in ((worse, 0.25), (better, 0.5)):
        settings = {"algorithm.learning_rate": last}
        assert sweep.publish(trial, checkpoint_of(sweep, trial, settings=settings, member=trial.name))
    sweep.close()
    for again in (sweep, planned(tmp_path / "pbt", methods=["crossattn"], search=population)):
        assert str(again.best()).startswith("best in training: crossattn, algorithm.learning_rate=0.5: ")

    other = planned(tmp_path / "other", methods=["crossattn"], search=population)
    assert other.reuse([sweep.home]) == 2
    again = planned(tmp_path / "other", methods=["crossattn"], search=population)
    assert again.best() == sweep.best(), "with the settings at its end"
    ids = [
        set(read(home, table)["scheduler"]) for home in (sweep.home, again.home) for table in ("training", "trainings")
    ]
    assert len(ids[0]) == 2
    assert all(each == ids[0] for each in ids), "rows are named by what was trained"
