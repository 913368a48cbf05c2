"""What is compared: names by what differs, one name for one world, and a rule for every variant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rllib_scale_analysis import load
from rllib_scale_analysis.rows import MOST_SHOWN, Setting, select, settings
from rllib_scale_analysis.tables.comparisons import paired_table

from artificial_results import artificial_episodes, changed, episode_row, loaded, part_of, typed_episodes, write_folder
from rllib_scale.errors import UserError

ROWS = artificial_episodes(seeds=(1,), scales=(16,), methods=("scale", "fastest-idle"), episodes=2)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"scale"}),
        ({"srr.lambda_kl": 0.1}, {"scale (λ2=0.001)", "scale (λ2=0.1)"}),
        ({"network.embedding_dim": 32}, {"scale (network.embedding_dim=16)", "scale (network.embedding_dim=32)"}),
        (
            {"algorithm.problems": {"family": {"task_s": 1}}},
            {"scale (algorithm.problems=null)", "scale (algorithm.problems={...})"},
        ),
        ({"algorithm.epochs": 300}, {"scale (40 epochs)", "scale (300 epochs)"}),
        ({"added.by.a.later.version": 1}, {"scale"}),
    ],
)
def test_a_variant_is_named_by_what_differs(changes: dict[str, Any], expected: set[str]) -> None:
    other = changed(episode_row("scale", 2, 16, 0), changes)
    frame = typed_episodes([episode_row("scale", 1, 16, 0), other, episode_row("crossattn", 1, 16, 0)])
    assert set(frame["variant"]) == expected | {"crossattn"}


def test_two_sweeps_that_each_have_one_value_are_two_variants(tmp_path: Path) -> None:
    """`report A B` made one method with six seeds of them."""
    folders = []
    for number, gamma in enumerate((0.99, 0.5)):
        rows = [changed(episode_row("scale", seed, 16, 0), {"algorithm.gamma": gamma}) for seed in range(3)]
        folders.append(write_folder(tmp_path / str(number), rows, [], sweep=str(number)))
        assert set(load(folders[-1]).episodes["variant"]) == {"scale"}
    both = load(*folders)
    assert both.episodes.groupby("variant")["train_seed"].nunique().to_dict() == {
        "scale (algorithm.gamma=0.99)": 3,
        "scale (algorithm.gamma=0.5)": 3,
    }


def test_a_training_on_a_named_problem_is_named_by_it() -> None:
    world = {"episode.horizon_s": 550.0, "workload.offered_load": 0.7, "episode.arrivals_until_s": 150.0}
    trained = {f"env.{path}": value for path, value in world.items()}
    rows = [changed(episode_row("scale", 1, 16, 0), trained), episode_row("scale", 1, 16, 1)]
    rows += [row | {"scenario": "steady-0.7", "mask": "feasible"} for row in rows]
    assert set(typed_episodes(rows)["variant"]) == {"scale (trained on steady-0.7)", "scale (trained on paper)"}


def test_worlds_that_differ_are_settings_that_differ_also_under_one_name() -> None:
    load_of = [row | {"world": {"workload.offered_load": 1.2}} for row in ROWS]
    at_32 = [row | {"test_servers": 32} for row in load_of]
    frame = typed_episodes([*ROWS, *load_of, *at_32])
    assert [setting.scenario for setting in settings(frame)] == ["paper", "paper with workload.offered_load=1.2"]
    assert len(select(frame, *settings(frame)[1])) == 8, "the numbers of servers of a world are one series"
    own = [row | {"scenario": "mine", "world": {"workload.min_tasks": k}} for k in (2, 3) for row in ROWS]
    assert [setting.scenario for setting in settings(typed_episodes(own))] == [
        "mine with workload.min_tasks=2",
        "mine with workload.min_tasks=3",
    ]


def test_a_world_under_two_names_has_both_and_its_rule_plays_it_once(tmp_path: Path) -> None:
    """`energy` is `steady-0.7` with another reward."""
    learned, rule = (episode_row(name, seed, 16, 0) for name, seed in (("scale", 1), ("fastest-idle", None)))
    rows = [
        row | {"scenario": name, "mask": "feasible", "asked": {"reward.energy_weight": weight}}
        for name, weight in (("energy", 1.0), ("steady-0.7", 0.0))
        for row in (rule,)
    ]
    rows.append(learned | {"scenario": "energy", "mask": "feasible", "asked": {"reward.energy_weight": 1.0}})
    loaded = load(write_folder(tmp_path / "r", rows, []))
    frame = loaded.episodes
    assert settings(frame) == [Setting("energy = steady-0.7", "feasible", "argmax")]
    assert [note for note in loaded.notes if note.startswith("1 of 3 episodes were played more than once")]
    assert sorted(frame["variant"]) == ["fastest-idle", "scale"]
    for name in ("energy", "steady-0.7", "energy = steady-0.7"):
        assert len(select(frame, name, "feasible", "argmax")) == 2


@pytest.mark.parametrize(
    ("scenario", "world", "expected"),
    [
        ("paper", {}, "completed"),
        ("overload-1.1", {}, "completed"),
        ("steady-0.7", {}, "response_censored_s"),
        ("paper", {"episode.arrivals_until_s": 10.0}, "response_censored_s"),
        ("agents-replicas", {}, "response_censored_s"),
    ],
)
def test_the_primary_endpoint_follows_from_the_problem(scenario: str, world: dict[str, Any], expected: str) -> None:
    row = episode_row("fastest-idle", None, 8, 0, scenario=scenario, world=world)
    assert set(typed_episodes([row])["endpoint"]) == {expected}


def test_trainings_of_two_versions_that_say_the_same_are_apart() -> None:
    rows = [episode_row("scale", seed, 16, 0) | {"version": version} for seed in (1, 2) for version in ("0.4", "0.5")]
    assert set(typed_episodes(rows)["variant"]) == {"scale (version 0.4)", "scale (version 0.5)"}


def test_one_id_with_two_contents_is_refused(tmp_path: Path) -> None:
    folders = [write_folder(tmp_path / name, ROWS, [], sweep=name) for name in "ab"]
    assert len(load(*folders).episodes) == len(ROWS)
    table = part_of(folders[1], "problems")
    frame = pd.read_parquet(table)
    frame["settings"] = frame["settings"].str.replace('"horizon_s": 12.0', '"horizon_s": 13.0')
    frame.to_parquet(table)
    with pytest.raises(
        UserError, match=rf"problem {frame['problem'][0]}: episode.horizon_s is not the same everywhere"
    ):
        load(*folders)
    frame["settings"] = frame["settings"].str.replace('"horizon_s": 13.0, ', "")
    frame.to_parquet(table)
    assert len(load(*folders).episodes) == len(ROWS), "an older version may say less"


def test_rows_without_their_dimension_are_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "r", ROWS, [])
    part_of(folder, "protocols").unlink()
    with pytest.raises(UserError, match=r"protocol [0-9a-f]{12}: rows name it, and protocols lacks it"):
        load(folder)


def test_pooled_seeds_are_said() -> None:
    notes: list[str] = []
    frames = loaded([*ROWS, *(row | {"eval_seed": 2} for row in ROWS)], notes=notes)
    assert (len(frames["episodes"]), notes) == (8, ["paper: episodes of 2 evaluation seeds are pooled."])


def test_every_variant_is_compared_with_the_rule_however_many_there_are() -> None:
    rows = artificial_episodes(seeds=(1,), scales=(16,), methods=("fastest-idle",), episodes=2)
    rows += [row | {"asked": {"decision.on_busy": "reserve"}} for row in rows]
    for number in range(MOST_SHOWN + 1):
        grid = artificial_episodes(seeds=(1,), scales=(16,), methods=("scale",), episodes=2)
        rows += [changed(row, {"algorithm.gamma": number}) for row in grid]
    table = paired_table(typed_episodes(rows))
    assert table["second"].str.startswith("fastest-idle").sum() == MOST_SHOWN + 1
