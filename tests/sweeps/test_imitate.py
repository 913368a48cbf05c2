"""The commands of docs/imitation.md: a network that imitates, and a training that begins with it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("ray")

from local_ray import LOCAL_RAY
from rllib_scale.cli import main
from rllib_scale.config.plan import SweepConfig, expand
from rllib_scale.config.yaml_files import build_model, parse_yaml
from rllib_scale.policies.policy import load_policy
from rllib_scale.results.tables import EPISODE_COLUMNS, TRAINING_COLUMNS, read_table

pytestmark = LOCAL_RAY
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "imitation.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, flags=re.DOTALL)
CLONE, TUNE = (text.strip() for language, text in BLOCKS if not language)
SMALL = {
    "evaluation.scales": "[16]",
    "evaluation.episodes": "2",
    "training.epochs": "2",
    "training.steps_per_epoch": "512",
}
FEW = SMALL | {"imitation.episodes": "6", "imitation.holdout_episodes": "3"}


def run(command: str, settings: dict[str, str]) -> tuple[int, str]:
    command = re.sub(r"\$\(ls -d (.*)\)", lambda found: str(next(Path().glob(found[1]))), command)
    _, *words = shlex.split(command)
    overrides = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    done = CliRunner().invoke(main, [*words, *overrides])
    return done.exit_code, done.output


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands of the page write, run in a folder with our tune_configs/."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tune_configs").symlink_to(ROOT / "tune_configs")
    return tmp_path / "results"


def test_a_clone_learns_from_its_expert_and_is_evaluated_beside_it(results: Path) -> None:
    code, text = run(CLONE, FEW)
    assert code == 0, text
    training = read_table(results / "clone" / "training.parquet", TRAINING_COLUMNS)
    assert training["epoch"].tolist() == [1, 2]
    assert training["imitation_loss"].is_monotonic_decreasing
    assert training["agreement"].between(0.2, 1).all()
    episodes = read_table(results / "clone" / "episodes.parquet", EPISODE_COLUMNS)
    assert episodes.groupby("method").size().to_dict() == {"crossattn": 2, "fastest-idle": 2}
    (policy,) = (results / "clone" / "policies").iterdir()
    assert load_policy(policy).trial.imitation.expert == "fastest-idle"


@pytest.mark.slow
def test_a_training_begins_with_the_clone(results: Path) -> None:
    assert run(CLONE, FEW)[0] == 0
    (clone,) = (results / "clone" / "policies").iterdir()
    written = (clone / "policy.json").stat().st_mtime_ns
    assert run(CLONE, FEW)[0] == 0
    assert (clone / "policy.json").stat().st_mtime_ns == written, "run again, it trains nothing anew"
    code, text = run(TUNE.replace("crossattn", "deepsets"), SMALL)
    assert code == 2
    assert "its network is cross-attention, that of this training deep-sets" in text
    code, text = run(TUNE, SMALL | {"training.num_envs": "2"})
    assert code == 0, text
    assert (read_table(results / "tuned" / "training.parquet", TRAINING_COLUMNS)["reference_kl"] > 0).all()
    (policy,) = (results / "tuned" / "policies").iterdir()
    settings = load_policy(policy).trial.training
    assert settings.reference_kl_coefficient == 0.1
    assert str(clone.parent) in str(settings.initial_policy)


def test_the_sweep_of_the_page_is_one() -> None:
    (text,) = (text for language, text in BLOCKS if language == "yaml")
    cells = expand(build_model(SweepConfig, parse_yaml(text, "page"), "page"), "page")
    assert {cell.trial.imitation.expert for cell in cells} == {"reserve:waiting=2", "price"}
    assert len(cells) == 2 * 3 * 2
