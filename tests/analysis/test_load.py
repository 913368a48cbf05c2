"""Reading a results folder."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rllib_scale_analysis import load
from rllib_scale_analysis.rows import Setting, require_one_setting, select, settings, variants

from artificial_results import (
    SEEDS,
    artificial_episodes,
    artificial_features,
    artificial_training,
    episode_row,
    part_of,
    tables_of,
    typed_episodes,
    write_folder,
)
from rllib_scale.errors import UserError
from rllib_scale.results.columns import EPISODE_COLUMNS, FEATURE_COLUMNS, TRAINING_COLUMNS
from rllib_scale.results.dataset import append


def test_frames_have_the_documented_columns_and_types(results_folder: Path) -> None:
    loaded = load(results_folder)
    for schema, frame in (
        (EPISODE_COLUMNS, loaded.episodes),
        (TRAINING_COLUMNS, loaded.training),
        (FEATURE_COLUMNS, loaded.features),
    ):
        assert {name: str(frame[name].dtype) for name in schema} == {n: dtype for n, (dtype, _) in schema.items()}
    assert "utilisation_large" in loaded.episodes
    assert len(loaded.episodes) == (2 * 5 * 4 + 5 + 6 * 4) * 6
    assert len(loaded.training) == 3 * 5 * 40
    assert loaded.manifest["sweep"] == "artificial"
    assert loaded.notes == ()


def test_rows_of_a_method_that_is_gone_are_read() -> None:
    """Their settings name the feature set `pairs` and the skip `price`, which no model of this version has."""
    loaded = load(Path(__file__).parents[2] / "analysis" / "studies" / "beyond" / "clones")
    learned = loaded.episodes[loaded.episodes["kind"] == "learned"]
    assert learned.groupby(["variant", "train_seed"]).ngroups == len(loaded.trainings) == 6


def test_a_curve_of_a_training_that_no_plan_has_is_left_out_with_a_note(tmp_path: Path) -> None:
    """As an unfinished one of a sweep whose file was changed since."""
    folder = write_folder(tmp_path, artificial_episodes(seeds=(42,), scales=(16,), methods=("scale",)), [])
    trial = folder / "trials" / "run-001" / "scale-s42-0123456789ab"
    trial.mkdir(parents=True)
    (trial / "result.json").write_text('{"epoch": 1, "episode_return": 1.0}\n')
    loaded = load(folder)
    assert (len(loaded.training), loaded.episodes["variant"].unique().tolist()) == (0, ["scale"])
    (note,) = loaded.notes
    assert "training scale-s42-0123456789ab: the sweep's plan does not have it" in note


def test_invalid_share_is_all_invalid_decisions_over_decisions() -> None:
    row = episode_row("scale", 1, 16, 0, decisions=10, invalid_no_fit=1, invalid_busy_avoidable=2)
    frame = typed_episodes([row | {"invalid_busy_unavoidable": 3}, episode_row("scale", 1, 16, 1, decisions=0)])
    assert frame["invalid_share"].iloc[0] == pytest.approx(0.6)
    assert np.isnan(frame["invalid_share"].iloc[1])


def test_of_rows_written_twice_the_last_counts(tmp_path: Path) -> None:
    episodes = [episode_row("scale", 1, 16, e, completed=e) for e in range(3)]
    training = artificial_training(seeds=(1,), methods=("scale",), epochs=2)
    folder = write_folder(
        tmp_path / "r",
        [*episodes, episode_row("scale", 1, 16, 1, completed=50)],
        [*training, training[1] | {"completed": 7.0}],
    )
    append(folder, **tables_of([episodes[2] | {"completed": 60}]))
    loaded = load(folder)
    assert sorted(loaded.episodes["completed"]) == [0, 50, 60]
    assert loaded.training.set_index("epoch")["completed"][2] == 7.0
    assert loaded.notes == ()


def test_several_folders_are_one_and_a_row_of_two_stands_once(tmp_path: Path) -> None:
    one, two = (artificial_episodes((1,), scales, ("scale", "fastest-idle")) for scales in ((16, 32), (32, 48)))
    curve = artificial_training(seeds=(1,), methods=("scale",), epochs=2)
    folders = [write_folder(tmp_path / name, rows, curve, sweep=name) for name, rows in (("a", one), ("b", two))]
    loaded = load(*folders)
    rows = loaded.episodes
    assert rows.groupby("test_servers").size().to_dict() == {16: 12, 32: 12, 48: 12}
    assert set(rows["variant"]) == {"scale", "fastest-idle"}
    assert len(loaded.training) == 2
    assert loaded.sweep == "a"


def test_a_missing_torn_or_foreign_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such results folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"no manifest\.json"):
        load(tmp_path)
    folder = write_folder(tmp_path / "r", artificial_episodes(episodes=1), [])
    path, manifest = part_of(folder), folder / "manifest.json"
    whole, config = path.read_bytes(), re.compile(r'"config": \{[^}]*\}')
    for harm, message in (
        (lambda: path.write_bytes(whole[: len(whole) // 2]), rf"{path}: not a readable"),
        (lambda: pd.DataFrame({"x": [1]}).to_parquet(path), "column 'scheduler' has missing values"),
        (lambda: pd.DataFrame({"episode": ["first"]}).to_parquet(path), rf"{path}: not a readable"),
        (lambda: manifest.write_text(config.sub('"config": [1]', manifest.read_text())), "config: input should be"),
    ):
        harm()
        with pytest.raises(UserError, match=message):
            load(folder)


@pytest.mark.parametrize("name", ["training", "features"])
def test_what_stands_beside_the_rows_is_left_out_where_it_cannot_be_read(tmp_path: Path, name: str) -> None:
    rows = artificial_episodes(seeds=(1,), scales=(16,), methods=("scale",), episodes=2)
    beside = artificial_training((1,), ("scale",), 3), artificial_features((1,), (16,), ("scale",))
    folder = write_folder(tmp_path, rows, *beside)
    assert (len(load(folder).training), len(load(folder).features), load(folder).notes) == (3, 1, ())
    path = part_of(folder, name)
    whole = path.read_bytes()
    for harm in (
        lambda: path.write_bytes(whole[: len(whole) // 2]),
        lambda: pd.DataFrame({"x": [1]}).to_parquet(path),
        path.unlink,
    ):
        harm()
        loaded = load(folder)
        assert len(loaded.episodes) == 2
        assert getattr(loaded, name).empty
        assert "variant" in getattr(loaded, name)
        told = [note for note in loaded.notes if note.startswith(str(path)) and note.endswith("is left out.")]
        assert len(told) == path.exists()


@pytest.mark.parametrize("table", ["schedulers", "problems", "protocols"])
def test_a_damaged_dimension_is_refused_by_name(table: str, tmp_path: Path) -> None:
    path = part_of(write_folder(tmp_path / "r", artificial_episodes(episodes=1), []), table)
    whole = pd.read_parquet(path)
    for column, value, message in (
        ("settings", "{", r"column 'settings' has no mapping in JSON: '\{'"),
        ("settings", "[]", r"column 'settings' has no mapping in JSON"),
        ("version", None, "column 'version' has missing values"),
    ):
        whole.assign(**{column: value}).to_parquet(path)
        with pytest.raises(UserError, match=rf"{path}: {message}"):
            load(tmp_path / "r")


def test_variants_stand_in_a_fixed_order_whatever_the_rows() -> None:
    frame = typed_episodes(artificial_episodes(seeds=SEEDS[:1], episodes=1))
    expected = ["scale", "crossattn", "ppo", "fastest-idle", "earliest-finish", "best-fit-memory"]
    assert variants(frame)[:6] == expected
    assert variants(frame.sample(frac=1, random_state=0)) == variants(frame)


def test_settings_are_listed_selected_and_not_mixed() -> None:
    rows = [episode_row("scale", 1, 16, e) for e in range(2)]
    frame = typed_episodes([*rows, rows[0] | {"mask": "feasible"}])
    assert settings(frame) == [Setting("paper", "none", "argmax"), Setting("paper", "feasible", "argmax")]
    require_one_setting(select(frame, "paper", "none", "argmax"))
    assert len(select(frame, "paper", "none", "argmax")) == 2
    with pytest.raises(UserError, match="mixes masks: feasible, none"):
        require_one_setting(frame)
