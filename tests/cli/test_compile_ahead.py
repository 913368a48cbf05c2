"""After `rllib-scale doctor --compile` no documented command compiles anything."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rllib_scale.config.methods import METHODS
from test_readme import LONG, RUNNABLE, blocks, runs_of
from test_readme import workplace as workplace  # a fixture

PROGRAM = str(Path(sys.executable).parent / "rllib-scale")
SHORT = ["--set", "epochs=1", "--set", "evaluation.episodes=1"]
TRAININGS = [
    [PROGRAM, "sweep", "quickstart", *SHORT],
    *([PROGRAM, "train", "--method", method, "--epochs", "1", "--results", f"results/{method}"] for method in METHODS),
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
    found |= {" ".join(run): compiled_by(run) for run in TRAININGS}
    assert not {run: names for run, names in found.items() if names}
