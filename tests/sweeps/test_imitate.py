"""Imitation through the command line, and a training that goes on from the clone: the commands of docs/imitation.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("ray")
pytestmark = pytest.mark.ray

from rllib_scale.cli import main  # noqa: E402
from rllib_scale.config.plan import SweepConfig, expand  # noqa: E402
from rllib_scale.config.yaml_files import build_model, parse_yaml  # noqa: E402
from rllib_scale.policies.policy import load_policy  # noqa: E402
from rllib_scale.results.tables import EPISODE_COLUMNS, TRAINING_COLUMNS, read_table  # noqa: E402

PAGE = (Path(__file__).parents[2] / "docs" / "imitation.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, flags=re.DOTALL)
CLONE, TUNE = (text.strip() for language, text in BLOCKS if not language)
SMALL = " --scales 16 --epochs 2 --set evaluation.episodes=2 --set training.steps_per_epoch=512"
FEW = SMALL + " --episodes 6 --set imitation.holdout_episodes=3"


def run(command: str, folder: Path) -> str:
    program = f"{sys.executable} -m rllib_scale"
    done = subprocess.run(
        command.replace("rllib-scale", program, 1),
        shell=True,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"HOME": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which both commands have run."""
    folder = tmp_path_factory.mktemp("imitation")
    (folder / "clone.txt").write_text(run(CLONE + FEW, folder))
    (folder / "tune.txt").write_text(run(TUNE + SMALL + " --set training.num_envs=2", folder))
    return folder


def test_imitate_writes_what_a_training_writes_and_says_how_alike_they_are(workplace: Path) -> None:
    results = workplace / "results" / "clone"
    training = read_table(results / "training.parquet", TRAINING_COLUMNS)
    assert training["epoch"].tolist() == [1, 2]
    assert training["imitation_loss"].is_monotonic_decreasing
    assert training["agreement"].between(0.2, 1).all()
    episodes = read_table(results / "episodes.parquet", EPISODE_COLUMNS)
    assert episodes.groupby("method").size().to_dict() == {"crossattn": 2, "fastest-idle": 2}
    said = (workplace / "clone.txt").read_text()
    assert f"crossattn: {training['agreement'].iloc[-1]:.1%} of the decisions of held-out episodes" in said
    means = episodes.groupby("method")["response_mean_s"].mean()
    for name in ("crossattn", "fastest-idle"):
        assert f"paper, 16 servers, {name}: mean response {means[name]:.2f} s" in said
    assert "| agreement " in said
    assert (results / "report" / "report.md").is_file()
    (policy,) = (results / "policies").iterdir()
    assert load_policy(policy).trial.imitation.expert == "fastest-idle"
    line = CliRunner().invoke(main, ["evaluate", str(policy), "--scales", "16", "--episodes", "1"])
    assert line.exit_code == 0, line.output


def test_run_again_imitate_trains_nothing_anew(workplace: Path) -> None:
    (policy,) = (workplace / "results" / "clone" / "policies").iterdir()
    before = (policy / "policy.json").stat().st_mtime_ns
    assert "crossattn: " in run(CLONE + FEW, workplace)
    assert (policy / "policy.json").stat().st_mtime_ns == before


def test_a_training_goes_on_from_the_clone_and_logs_its_distance(workplace: Path) -> None:
    results = workplace / "results" / "tuned"
    training = read_table(results / "training.parquet", TRAINING_COLUMNS)
    assert (training["reference_kl"] > 0).all()
    (policy,) = (results / "policies").iterdir()
    settings = load_policy(policy).trial.training
    assert settings.reference_kl_coefficient == 0.1
    assert settings.initial_policy is not None
    assert str(workplace / "results" / "clone" / "policies") in settings.initial_policy


def test_a_policy_of_another_shape_is_refused_before_anything_runs(workplace: Path) -> None:
    command = (TUNE + SMALL).replace("--method crossattn", "--method deepsets").replace("tuned", "refused")
    with pytest.raises(AssertionError) as refused:
        run(command, workplace)
    assert "its network is cross-attention, that of this training deep-sets" in str(refused.value)
    assert not (workplace / "results" / "refused" / "manifest.json").exists()


def test_the_sweep_of_the_page_is_one() -> None:
    (text,) = (text for language, text in BLOCKS if language == "yaml")
    cells = expand(build_model(SweepConfig, parse_yaml(text, "page"), "page"), "page")
    assert {cell.trial.imitation.expert for cell in cells} == {"reserve:waiting=2", "price"}
    assert len(cells) == 2 * 3 * 2
