"""The commands of docs/imitation.md: a network that imitates, and a training that begins with it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("ray")

from local_ray import LOCAL_RAY
from rllib_scale.config.yaml_files import parse_yaml
from rllib_scale.loading import sweep_from
from rllib_scale.policies.policy import load_policy
from rllib_scale.sweeps.planning import make_plan
from sweep_runs import episodes, refused, succeed, training

pytestmark = LOCAL_RAY
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "imitation.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, flags=re.DOTALL)
CLONE, TUNE = (text.strip() for language, text in BLOCKS if not language)
SMALL = ["evaluation.scales=[16]", "evaluation.episodes=2", "algorithm.epochs=2"]
FEW = [*SMALL, "algorithm.steps_per_epoch=512", "algorithm.episodes=6", "algorithm.holdout_episodes=3"]


def words(command: str) -> list[str]:
    """Of a command of the page, without that of the program."""
    command = re.sub(r"\$\(ls -d (.*)\)", lambda found: str(next(Path().glob(found[1]))), command)
    return shlex.split(command)[1:]


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands of the page write, run in a folder with our tune_configs/."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tune_configs").symlink_to(ROOT / "tune_configs")
    return tmp_path / "results"


def test_a_clone_learns_from_its_expert_and_is_evaluated_beside_it(results: Path) -> None:
    succeed(*words(CLONE), settings=FEW)
    curve = training(results / "clone")
    assert curve["epoch"].tolist() == [1, 2]
    assert curve["imitation_loss"].is_monotonic_decreasing
    assert curve["agreement"].between(0.2, 1).all()
    assert episodes(results / "clone").groupby("method").size().to_dict() == {"crossattn": 2, "fastest-idle": 2}
    (policy,) = (results / "clone" / "policies").iterdir()
    assert load_policy(policy).trial.algorithm.expert == "fastest-idle"


@pytest.mark.slow
def test_a_training_begins_with_the_clone(results: Path) -> None:
    succeed(*words(CLONE), settings=FEW)
    (clone,) = (results / "clone" / "policies").iterdir()
    line = refused(*words(TUNE.replace("crossattn", "deepsets")), settings=SMALL)
    assert "its network is cross-attention, that of this training deep-sets" in line
    succeed(*words(TUNE), settings=[*SMALL, "algorithm.steps_per_epoch=512", "algorithm.num_envs=2"])
    assert (training(results / "tuned")["reference_kl"] > 0).all()
    (policy,) = (results / "tuned" / "policies").iterdir()
    settings = load_policy(policy).trial.algorithm
    assert settings.reference_kl_coefficient == 0.1
    assert str(clone.parent) in str(settings.initial_policy)


def test_the_sweep_of_the_page_is_one() -> None:
    (text,) = (text for language, text in BLOCKS if language == "yaml")
    trials = make_plan(sweep_from(parse_yaml(text, "page"), "page"), "page").trials
    assert {trial.config.algorithm.expert for trial in trials} == {"reserve:waiting=2", "price"}
    assert len(trials) == 2 * 3 * 2
