"""After `rllib-scale doctor --compile` no documented command compiles anything."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from test_readme import LONG, RUNNABLE, blocks, runs_of
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
    [PROGRAM, "sweep", "quickstart", *SHORT],
    [PROGRAM, "sweep", "smoke", "--set", "methods=[ppo-srr,deepsets,attention-model]"],
    *([PROGRAM, "sweep", f"{name}.yaml"] for name in SWEEPS),
]


def documented() -> Iterator[tuple[str, str, list[list[str]]]]:
    """Each block of the pages, with what it runs; trainings and a cluster that another test starts are left out."""
    for page in RUNNABLE:
        for language, text in blocks(page):
            yield language, text, runs_of(language, text, LONG - {"execute"})


@pytest.mark.slow
@pytest.mark.ray
def test_no_documented_command_compiles_anything_after_doctor(
    workplace: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cache = tmp_path_factory.mktemp("cache")
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}

    def compiled_by(run: list[str]) -> list[str]:
        """Names of the functions whose machine code is new in the cache."""
        before = {*cache.rglob("*.nbc")}
        done = subprocess.run(run, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, (run, done.stderr)
        return sorted(path.name for path in {*cache.rglob("*.nbc")} - before)

    assert compiled_by([PROGRAM, "doctor", "--compile"])
    assert not compiled_by([PROGRAM, "doctor", "--compile"]), "what it compiles it finds again"
    found = {}
    for language, text, runs in documented():
        if language == "yaml":
            (workplace / f"{yaml.safe_load(text).get('name', 'part')}.yaml").write_text(text)
        found |= {" ".join(run): compiled_by(run) for run in runs}
    for name, text in SWEEPS.items():
        (workplace / f"{name}.yaml").write_text(f"name: {name}\n{text}")
    found |= {" ".join(run): compiled_by(run) for run in TRAININGS}
    assert not {run: names for run, names in found.items() if names}
