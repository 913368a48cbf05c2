"""After `rllib-scale doctor --compile` no documented command compiles anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from numba.core.dispatcher import Dispatcher

from test_compiled import compiled_functions
from test_readme import LONG, RUNNABLE, blocks, files, runs_of
from test_readme import workplace as workplace  # a fixture

PROGRAM = str(Path(sys.executable).parent / "rllib-scale")
SWEEPS = {
    "searched": """
scenario: steady-0.7
methods:
  - context-price: {algorithm: &search {population: 4, instances: 2}}
  - adaptive-price: {algorithm: *search}
  - decima: {algorithm: {instances: 1, episodes: 2}}
seeds: [5]
env: {episode: {horizon_s: 90.0, arrivals_until_s: 30.0}, cluster: {servers: 4}}
algorithm: {epochs: 2, validation_instances: 2, validate_every: 1}
evaluation: {scales: [4, 8], episodes: 2, decisions: [argmax, sample]}
""",
    "copies": """
scenario: steady-0.7
methods: [scale-any]
seeds: [5]
algorithm:
  problems: {family: {agents_share: 0.5, arrivals_s: [10, 10]}}
  epochs: 2
  copies: 3
  groups: 4
  steps_per_epoch: 64
  minibatch_size: 32
  validation_instances: 2
network: {embedding_dim: 8}
evaluation: {scales: [4], episodes: 1}
""",
}
SHORT = ["--set", "algorithm.epochs=2", "--set", "evaluation.episodes=2"]
TRAININGS = [
    ["sweep", "quickstart", *SHORT],
    ["sweep", "smoke", "--set", "methods=[ppo-srr,deepsets,attention-model]"],
    *(["sweep", f"{name}.yaml"] for name in SWEEPS),
]


def compiled_by(run: list[str], cache: Path) -> list[str]:
    """Names of the functions whose machine code a run adds to a cache."""
    before, environment = {*cache.rglob("*.nbc")}, os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(run, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, (run, done.stderr)
    return sorted(path.name for path in {*cache.rglob("*.nbc")} - before)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty cache, after `doctor --compile`."""
    folder = tmp_path_factory.mktemp("cache")
    assert compiled_by([PROGRAM, "doctor", "--compile"], folder)
    return folder


@pytest.mark.slow
def test_what_doctor_compiles_it_finds_again(cache: Path) -> None:
    assert not compiled_by([PROGRAM, "doctor", "--compile"], cache)


@pytest.mark.slow
def test_every_function_that_python_may_call_is_compiled(cache: Path) -> None:
    """Also one that nothing below happens to call."""
    kept = {path.name.partition("-")[0] for path in cache.rglob("*.nbi")}
    modules = {module for module, _ in compiled_functions()}
    called = {value.py_func for each in modules for value in vars(each).values() if isinstance(value, Dispatcher)}
    assert {f"{Path(each.__code__.co_filename).stem}.{each.__qualname__}" for each in called} <= kept


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE)
def test_no_command_of_a_page_compiles_anything(page: str, workplace: Path, cache: Path) -> None:
    found = {}
    for name, text in files(page).items():
        (workplace / name).write_text(text)
    for language, text in blocks(page):
        if language == "yaml":
            (workplace / f"{yaml.safe_load(text).get('name', 'part')}.yaml").write_text(text)
        for run in runs_of(language, text, LONG - {"execute"}):
            found[" ".join(run)] = compiled_by(run, cache)
    assert not {run: names for run, names in found.items() if names}


@pytest.mark.slow
@pytest.mark.parametrize("training", TRAININGS, ids=" ".join)
def test_no_training_compiles_anything(
    training: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in SWEEPS.items():
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\n{text}")
    assert not compiled_by([PROGRAM, *training], cache)
