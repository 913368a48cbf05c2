"""README and docs/: every command and setting on them exists, and every page works from top to bottom as it stands."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Container
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from artificial_results import artificial_episodes, artificial_training, write_folder
from rllib_scale.cli import main
from rllib_scale.config.yaml_files import parse_yaml
from rllib_scale.loading import sweep_from
from rllib_scale.sweeps.planning import make_plan
from workloads.made_trace import made_trace

ROOT = Path(__file__).parent.parent
FILES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("analysis/studies/**/README.md"))]
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in FILES}
OURS = [name for name in PAGES if not name.startswith("analysis/")]
ELSEWHERE = {
    "docs/cluster.md": "tests/clusters/test_documented_cluster.py",
    "docs/live.md": "tests/live/test_library.py",
    "docs/extending.md": "tests/test_extending_page.py",
    "docs/imitation.md": "tests/sweeps/test_imitate.py",
}
"""Pages that tests of their own carry out."""
PROGRAM = re.compile(r"^(?:\.venv/bin/)?rllib-scale (?=[a-z])")
LONG = {"sweep", "reproduce", "train", "dashboard", "execute", "fetch"}
"""Commands that need more than a minute or a cluster; of a sweep the plan is made."""


def blocks(page: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w*)\n(.*?)^```", PAGES[page], flags=re.DOTALL | re.MULTILINE)


def files(page: str) -> dict[str, str]:
    """The files that a page shows: a block after a paragraph that ends with the name of a file of its language."""
    shown = re.findall(r"`([\w.-]+\.(\w+))`[^`]*:\n\n```(\w+)\n(.*?)^```", PAGES[page], flags=re.DOTALL | re.MULTILINE)
    return {name: text for name, end, language, text in shown if end == language}


def commands(text: str) -> list[str]:
    """The lines of a block that call the program, each with the lines that go on with it, without comments."""
    lines = text.replace("\\\n", " ").splitlines()
    return [re.sub(r"\s+# .*", "", line) for line in lines if PROGRAM.match(line)]


def words(command: str) -> list[str]:
    return shlex.split(PROGRAM.sub("", command))


COMMANDS = sorted(
    {line for page in PAGES for language, text in blocks(page) if not language for line in commands(text)}
)
RUNNABLE = [page for page in OURS if page not in ELSEWHERE and re.search(r"^```(python)?\n", PAGES[page], re.MULTILINE)]


@pytest.mark.parametrize("command", COMMANDS)
def test_command_is_one_of_the_program_with_its_options(command: str) -> None:
    name, *arguments = words(command)
    context = main.make_context("rllib-scale", [], resilient_parsing=True)
    main.commands[name].make_parser(context).parse_args(arguments)


def test_python_on_the_pages_compiles_and_yaml_makes_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made_trace().save("trace.json")
    trials = {}
    for page in OURS:
        for language, text in blocks(page):
            if language == "python":
                compile(text, page, "exec")
            if language == "json":
                json.loads(text)
            if language == "yaml" and page not in ("docs/extending.md", "docs/live.md", "docs/replicas.md"):
                settings = parse_yaml(text, page)
                if "search" in settings:  # a part of a sweep
                    settings = {"name": "search", "methods": ["scale"]} | settings
                plan = make_plan(sweep_from(settings, str(tmp_path / "sweep.yaml")), page)
                trials[page, settings["name"]] = sum(trial.config is not None for trial in plan.trials)
    assert trials["README.md", "my_sweep"] == 20
    assert "20 trainings" in PAGES["README.md"]
    assert trials["docs/sweeps.md", "search"] == 32


PARSED = {
    "make": r"(quickstart|test|lint|docs|install)",
    "source": r"\.venv/bin/activate",
    "pip": r"install --constraint constraints\.txt --editable '\.\[[a-z,]+\]'",
    "ray": r"(get-auth-token|up|down|dashboard|exec|job (submit|list|logs|stop)|start|status)( .*)?",
    "echo": r"[\d. ]+ > arrivals\.txt",
    "chmod": r"600 ~/\.ray/auth_token",
    "docker": r"(build|push) .*REGISTRY/rllib-scale:ray-.*",
    "kubectl": r"(create|delete) -f cluster-kuberay\.yaml|logs --follow job/rllib-scale",
    "sbatch": r"slurm\.sbatch \S+ \S+",
    "grep": r"-rhoE .* analysis/studies/\S+ .*",
}
"""Other programs on the pages -> their arguments. They need a cluster, or are what runs the tests."""


@pytest.mark.parametrize("page", OURS)
def test_every_line_of_a_page_is_run_or_is_one_that_needs_a_cluster_and_is_parsed(page: str) -> None:
    makefile, extras = (ROOT / "Makefile").read_text(), set()
    for language, text in blocks(page):
        if language == "python":
            assert not re.search(r"^\s*(class|def) .*: \.\.\.$", text, re.MULTILINE), "a stub does not run"
        for line in text.replace("\\\n", " ").splitlines() if not language else ():
            first, _, rest = re.sub(r"\s+# .*", "", line).partition(" ")
            if not first or PROGRAM.match(line) or line.startswith("python examples/"):
                continue  # what other tests carry out or parse
            assert first in PARSED, line
            assert re.fullmatch(PARSED[first], rest), line
            if first == "make":
                assert re.search(rf"^{rest}:", makefile, re.MULTILINE), line
            for named in re.findall(r"-- (rllib-scale .*)", rest):
                name, *arguments = words(named)
                main.commands[name].make_parser(main.make_context("x", [], resilient_parsing=True)).parse_args(
                    arguments
                )
    text = PAGES[page]
    extras |= {name for found in re.findall(r"\.\[([a-z,]+)\]'", text) for name in found.split(",")}
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras <= set(optional)
    assert not re.search(r"pip install (?!--constraint constraints.txt |boto3|langgraph)", text), (
        "extras need constraints"
    )
    assert "HEAD:8265" not in text, "the port is bound to the head's loopback"
    assert "(api/" not in text, "pages that only the site can show"


def test_readme_names_what_ci_runs() -> None:
    made = re.findall(r"^make (\w+)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert made == ["lint", "test"]
    assert all(f"`make {name}`" in PAGES["README.md"] for name in made)


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like a clone in which quickstart has run, and a trace has been imported."""
    for name in ("analysis", "examples", "tune_configs"):
        (tmp_path / name).symlink_to(ROOT / name)
    write_folder(tmp_path / "results" / "quickstart", artificial_episodes(), artificial_training())
    made_trace(sessions=80).save(tmp_path / "trace.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def runs_of(language: str, text: str, long: Container[str] = LONG) -> list[list[str]]:
    """What a block of a page runs, but for commands of these names and what needs results of others."""
    if language == "python":
        return [[sys.executable, "-c", text]]
    runs = [[sys.executable, *line.split()[1:]] for line in text.splitlines() if line.startswith("python examples")]
    for command in commands(text):
        name, *arguments = words(command)
        if name == "sweep":
            name, arguments = "validate", arguments[:1]
        placeholder = re.search(r"\b[A-Z]{4,}\b", " ".join(arguments))
        elsewhere = any(re.match(r"(/shared/)?results/(?!quickstart)", each) for each in arguments)
        if name not in long and not placeholder and not elsewhere:
            runs.append([str(Path(sys.executable).parent / "rllib-scale"), name, *arguments])
    return [] if language else runs


def test_a_page_shows_files_of_the_formats_that_it_describes() -> None:
    assert set(files("docs/files.md")) == {"tasks.csv", "edges.csv", "otlp.json", "flat.json"}


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE)
def test_page_works_from_top_to_bottom(page: str, workplace: Path) -> None:
    for name, text in files(page).items():
        (workplace / name).write_text(text)
    for language, text in blocks(page):
        if language == "yaml":
            (workplace / f"{yaml.safe_load(text).get('name', 'part')}.yaml").write_text(text)
        runs = runs_of(language, text)
        for run in runs:
            done = subprocess.run(run, capture_output=True, text=True, check=False)
            assert done.returncode == 0, (run, done.stderr)
        for name in re.findall(r"--(?:schedule|gantt|trace|save-workload|onnx|output) (\S+)", text if runs else ""):
            assert re.search(r"\b[A-Z]{4,}\b", text) or (workplace / name).stat().st_size > 100, name


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


def test_every_command_and_every_page_is_listed() -> None:
    assert set(re.findall(r"`rllib-scale ([a-z][\w-]+)", PAGES["docs/commands.md"])) == set(main.commands)
    listed = set(re.findall(r"\]\(([\w/-]+\.(?:md|ipynb))\)", PAGES["docs/README.md"])) | {"README.md"}
    docs = ROOT / "docs"
    assert listed == {path.name for end in ("md", "ipynb") for path in docs.glob(f"*.{end}")}
    assert "](docs/README.md)" in PAGES["README.md"]


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_links_to_and_the_files_it_names_exist(page: str) -> None:
    text, folder = PAGES[page], (ROOT / page).parent
    for target, _, part in re.findall(r"\]\(([^)#\s]*)(#([\w-]+))?\)", text):
        if target.startswith("https://"):
            continue
        file = folder / target if target else ROOT / page
        assert file.exists(), target
        if part:
            headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert part in anchors, f"{target}#{part}"
    for name in re.findall(r"`((?:docs|tune_configs|rllib_scale)/[\w/.-]*)`", text):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`([\w-]+\.yaml)`", text) if page == "docs/sweeps.md" else ():
        assert (ROOT / "tune_configs" / name).exists(), name
