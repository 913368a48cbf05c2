"""A row carries the settings that its training had, and a setting that no method uses is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from rllib_scale.config import METHODS, TrialConfig
from rllib_scale.config.plan import SweepConfig, expand
from rllib_scale.config.used_settings import used_settings
from rllib_scale.config.yaml_files import build_model, load_model
from rllib_scale.errors import UserError
from rllib_scale.results.status import planned_trainings

GAMMAS = {"training.gamma": [0.9, 0.99]}


def sweep(methods: list[str], **data: Any) -> SweepConfig:
    return build_model(SweepConfig, {"name": "test", "scenario": "steady-0.7", "methods": methods, **data}, "test")


def trained(config: SweepConfig) -> list[tuple[str, str]]:
    return [(cell.trial.method, cell.label) for cell in expand(config, "test")]


@pytest.mark.parametrize(
    ("methods", "grid", "expected"),
    [
        (
            ["scale", "dqn"],
            {"dqn.learning_rate": [1e-4, 1e-3]},
            [("scale", ""), ("dqn", "dqn.learning_rate=0.0001"), ("dqn", "dqn.learning_rate=0.001")],
        ),
        (
            ["crossattn", "dqn"],
            {"training.clip": [0.1, 0.2], "training.gamma": [0.9]},
            [
                ("crossattn", "training.clip=0.1; training.gamma=0.9"),
                ("crossattn", "training.clip=0.2; training.gamma=0.9"),
                ("dqn", "training.gamma=0.9"),
            ],
        ),
        (
            ["scale", "scale-r"],
            {"env.reward": [{"name": "paper"}, {"name": "tasks-in-system"}]},
            [
                ("scale", 'env.reward={"name": "paper"}'),
                ("scale", 'env.reward={"name": "tasks-in-system"}'),
                ("scale-r", ""),
            ],
        ),
        (
            ["crossattn", "crossattn-r"],
            {"env.episode": [{"mask": "feasible", "horizon_s": 9.0}, {"mask": "none", "horizon_s": 9.0}]},
            [
                ("crossattn", 'env.episode={"horizon_s": 9.0, "mask": "feasible"}'),
                ("crossattn", 'env.episode={"horizon_s": 9.0, "mask": "none"}'),
                ("crossattn-r", 'env.episode={"horizon_s": 9.0}'),
            ],
        ),
        (
            ["ppo", "set-transformer"],
            {"network.induced_points": [4, 8]},
            [
                ("ppo", ""),
                ("set-transformer", "network.induced_points=4"),
                ("set-transformer", "network.induced_points=8"),
            ],
        ),
        (
            ["crossattn", "context-price", "deeprm"],
            {"resources.learner": ["lean", "rllib"]},
            [
                ("crossattn", "resources.learner=lean"),
                ("crossattn", "resources.learner=rllib"),
                ("context-price", ""),
                ("deeprm", ""),
            ],
        ),
        (
            ["crossattn"],
            {"imitation.expert": [None, "fastest-idle"], "training.entropy_coefficient": [0.0, 0.01]},
            [
                ("crossattn", "imitation.expert=null; training.entropy_coefficient=0.0"),
                ("crossattn", "imitation.expert=null; training.entropy_coefficient=0.01"),
                ("crossattn", "imitation.expert=fastest-idle"),
            ],
        ),
    ],
)
def test_a_method_without_a_setting_trains_once_without_it(
    methods: list[str], grid: dict[str, list[Any]], expected: list[tuple[str, str]]
) -> None:
    assert trained(sweep(methods, grid=grid)) == expected


def test_points_of_a_search_too() -> None:
    space = {"training.clip": {"uniform": [0.1, 0.3]}, "dqn.learning_rate": {"choice": [1e-3, 1e-4]}}
    found = trained(sweep(["crossattn", "dqn"], search={"samples": 3, "space": space}))
    assert [method for method, _ in found if method == "crossattn"] == ["crossattn"] * 3
    assert all("dqn" not in label for method, label in found if method == "crossattn")
    assert {label for method, label in found if method == "dqn"} <= {
        "dqn.learning_rate=0.001",
        "dqn.learning_rate=0.0001",
    }


def test_who_trains_beside_a_method_does_not_change_its_identity() -> None:
    both = expand(sweep(["scale", "dqn"], grid={"dqn.learning_rate": [1e-3], **GAMMAS}), "test")
    alone = expand(sweep(["dqn"], grid={"dqn.learning_rate": [1e-3], **GAMMAS}), "test")
    assert [cell for cell in both if cell.trial.method == "dqn"] == alone
    of_scale = [cell for cell in both if cell.trial.method == "scale"]
    assert of_scale == expand(sweep(["scale"], grid=GAMMAS), "test")


@pytest.mark.parametrize(
    ("methods", "data", "parts"),
    [
        (["scale-r"], {"grid": {"env.reward": [{"name": "paper"}]}}, ["grid.env.reward.name", "scale-r"]),
        (["scale-r"], {"grid": {"env.episode.mask": ["none", "feasible"]}}, ["grid.env.episode.mask", "scale-r"]),
        (["scale-r"], {"env": {"reward": {"energy_weight": 1.0}}}, ["env.reward.energy_weight", "scale-r"]),
        (["scale"], {"grid": {"dqn.learning_rate": [1e-3]}}, ["grid.dqn.learning_rate", "a method that does, as dqn"]),
        (["dqn", "sac"], {"grid": {"training.clip": [0.1]}}, ["grid.training.clip", "dqn, sac", "gamma"]),
        (["crossattn"], {"grid": {"srr": [{"lambda_kl": 0.1}]}}, ["grid.srr.lambda_kl", "scale"]),
        (["deepsets"], {"grid": {"network.num_heads": [2]}}, ["grid.network.num_heads", "embedding_dim"]),
        (["scale"], {"grid": {"network.embeding_dim": [8]}}, ["grid.network.embeding_dim", "embedding_dim"]),
        (["context-price"], {"training": {"epochs": 5}}, ["training.epochs", "problems"]),
        (["decima"], {"deeprm": {"queue": 5}}, ["deeprm.queue", "a method that does, as deeprm"]),
        (["scale"], {"imitation": {"episodes": 5}}, ["imitation.episodes", "with imitation.expert"]),
        (
            ["crossattn"],
            {"imitation": {"expert": "fastest-idle"}, "training": {"clip": 0.1}},
            ["training.clip", "crossattn with imitation.expert"],
        ),
        (["context-price"], {"resources": {"sampler": "rllib"}}, ["resources.sampler"]),
        ([], {"grid": {"training.gamma": [0.9]}}, ["grid.training.gamma", "trains nothing"]),
        ([], {"training": {"gamma": 0.9}}, ["training.gamma", "trains nothing"]),
        (
            ["crossattn"],
            {"search": {"scheduler": "pbt", "space": {"srr.lambda_kl": {"uniform": [0.0, 0.1]}}}},
            ["search.space.srr.lambda_kl", "crossattn"],
        ),
        (
            ["dqn"],
            {"search": {"space": {"training": {"choice": [{"passes": 2}]}}}},
            ["search.space.training.passes", "dqn"],
        ),
        (["crossattn-r"], {"grid": {"env.decision.order": ["longest-hop"]}}, ["grid.env.decision.order longest-hop"]),
        (["crossattn-r"], {"grid": {"training.time_unit_s": [None, 1.0]}}, ["grid.training.time_unit_s null"]),
    ],
)
def test_a_setting_that_no_method_uses_is_refused(methods: list[str], data: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        sweep(methods, **data)
    assert all(part in str(caught.value) for part in parts), caught.value
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= 300


def test_overrides_of_the_command_line_too(tmp_path: Path) -> None:
    file = tmp_path / "test.yaml"
    file.write_text("name: test\nmethods: [dqn]\n")
    assert load_model(SweepConfig, file, ["training.gamma=0.9"]).training.gamma == 0.9
    for override, key in (("training.clip=0.1", "training.clip"), ("grid.training.clip=[0.1]", "grid.training.clip")):
        with pytest.raises(UserError, match=f"{key}: no method of the sweep"):
            load_model(SweepConfig, file, [override])


def test_a_results_folder_is_read_whatever_it_says(tmp_path: Path) -> None:
    config = sweep(["scale", "dqn"], grid={"dqn.learning_rate": [1e-3]}).model_dump(mode="json") | {
        "methods": ["scale"]
    }
    manifest = {"format": "rllib-scale-results", "version": 1, "sweep": "test", "config": config}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert len(planned_trainings(tmp_path)) == 1
    for committed in ("clones", "steady"):
        assert planned_trainings(Path("analysis/beyond") / committed)


@pytest.mark.parametrize("method", METHODS)
def test_the_table_names_settings_that_there_are(method: str) -> None:
    feasible = {"episode": {"mask": "feasible"}}
    whole = TrialConfig(method=method, env=feasible, training={"problems": {}}).model_dump()
    for imitates in (False, True):
        used = used_settings(method, imitates)
        for path in (*used.sections, *used.exceptions):
            value: Any = whole
            for key in path.split("."):
                assert key in value, path
                value = value[key]
