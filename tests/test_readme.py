"""What the README and the pages it leads to say can be done is done here, as it stands there."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from artificial_results import artificial_episodes, artificial_training, write_folder
from rllib_scale.cli import main
from rllib_scale.config.planning import make_plan
from rllib_scale.config.yaml_files import parse_yaml
from rllib_scale.loading import sweep_from

ROOT = Path(__file__).parent.parent
NAMES = (
    "README.md",
    *(f"docs/{name}.md" for name in ("commands", "concepts", "library", "quickstart", "speed", "sweeps")),
)
PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in NAMES}
BLOCKS = [block for page in PAGES.values() for block in re.findall(r"```(\w*)\n(.*?)```", page, flags=re.DOTALL)]
COMMANDS = [line for _, text in BLOCKS for line in text.splitlines() if line.startswith(".venv/bin/rllib-scale")]
PYTHON = [text for language, text in BLOCKS if language == "python"]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like a clone in which quickstart has run."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "tune_configs", folder / "tune_configs")
    (folder / "analysis").symlink_to(ROOT / "analysis")
    write_folder(folder / "results" / "quickstart", artificial_episodes(), artificial_training())
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_command_is_one_of_the_program_with_its_options(command: str) -> None:
    _, name, *arguments = shlex.split(command)
    known = main.make_context("rllib-scale", [], resilient_parsing=True)
    options = {option for parameter in main.commands[name].get_params(known) for option in parameter.opts}
    assert {argument for argument in arguments if argument.startswith("--")} <= options


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_command_runs(command: str, workplace: Path) -> None:
    if "mine.json" in command:  # what the example above it writes
        (code,) = (code for code in PYTHON if "mine.json" in code)
        test_python_example_runs(code, workplace)
    program, *arguments = shlex.split(command)
    installed = Path(sys.executable).parent / Path(program).name
    done = subprocess.run([installed, *arguments], cwd=workplace, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in re.findall(r"--(?:schedule|gantt|save-workload) (\S+)", command):
        assert (workplace / name).stat().st_size > 100


@pytest.mark.slow
@pytest.mark.parametrize("code", PYTHON)
def test_python_example_runs(code: str, workplace: Path) -> None:
    if "policy.onnx" in code:  # what the command above it writes
        (command,) = (line for line in COMMANDS if "--onnx policy.onnx" in line)
        test_command_runs(command, workplace)
    done = subprocess.run([sys.executable, "-c", code], cwd=workplace, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_worst_instance_of_the_example_is_played_to_the_same_response(tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "examples" / "adversary.py", "large-only", "reserve", "--evaluations", "64"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    *_, found = re.findall(r"large-only (\S+) s, reserve (\S+) s: ratio (\S+)", done.stdout)
    worst = ["--workload", str(tmp_path / "worst.json"), "--config", str(tmp_path / "worst.yaml")]
    for name, response in zip(("large-only", "reserve"), found, strict=False):
        played = CliRunner().invoke(main, ["simulate", *worst, "--scheduler", name, "--json"])
        assert f"{json.loads(played.stdout)['response_mean_s']:.2f}" == response
    assert float(found[2]) > 1.2  # a rule that waits for few servers is easily embarrassed


def test_yaml_examples_are_sweeps_and_a_search() -> None:
    ours, sweep, search = (parse_yaml(text, "page") for language, text in BLOCKS if language == "yaml")
    trainings = [trial for trial in make_plan(sweep_from(ours, "README.md"), "README.md").trials if trial.config]
    assert len(trainings) == 20
    assert "20 trainings" in PAGES["README.md"]
    assert len(make_plan(sweep_from(sweep, "sweeps.md"), "sweeps.md").trials) == 5 * (2 + 1)
    searched = {"name": "search", "methods": ["scale"]} | search
    assert len(make_plan(sweep_from(searched, "sweeps.md"), "sweeps.md").trials) == 32


def test_every_command_of_the_program_is_on_its_page_and_the_other_way_round() -> None:
    mentioned = set(re.findall(r"`rllib-scale ([a-z][\w-]+)", PAGES["docs/commands.md"]))
    assert mentioned | {"schedulers", "scenarios", "doctor"} == set(main.commands)
    assert set(re.findall(r"`rllib-scale ([a-z][\w-]+)", PAGES["README.md"])) <= set(main.commands)
    reached = set(re.findall(r"\]\(docs/([\w-]+\.md)\)", PAGES["README.md"]))
    assert reached | {"context-price.md"} >= {path.name for path in ROOT.glob("docs/*.md")}


@pytest.mark.parametrize(
    "page", sorted(str(path.relative_to(ROOT)) for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")])
)
def test_what_a_page_links_to_and_the_files_it_names_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        assert target.startswith("https://") or ((ROOT / page).parent / target).exists(), target
    for name in re.findall(r"`((?:docs|tune_configs|rllib_scale)/[\w/.-]*)`", text):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`([\w-]+\.yaml)`", PAGES.get(page, "")):
        assert (ROOT / "tune_configs" / name).exists() or (ROOT / name).exists(), name
