"""What is installed: every module and data file, and nothing that tests or results need."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {"rllib_scale": "rllib_scale", "analysis": "rllib_scale_analysis"}
DATA = (
    *("scenarios/*.yaml", "workloads/tables/*.json", "zoo/*/*.json", "zoo/*/*.safetensors"),
    *("report/*.css", "report/*.html", "report/*.js"),
)


def sources() -> dict[str, Path]:
    """Path in the installation -> file in the clone."""
    return {
        f"{package}/{path.relative_to(ROOT / folder).as_posix()}": path
        for folder, package in FOLDERS.items()
        for pattern in ("*.py", "**/*.py", *DATA)
        for path in (ROOT / folder).glob(pattern)
    }


def run(arguments: Sequence[object], cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The sources in a folder of their own: a build writes beside them."""
    folder = tmp_path / "clone"
    for name in ("pyproject.toml", "setup.py", "README.md"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    for path in [*sources().values(), ROOT / "tests" / "conftest.py", ROOT / "analysis" / "beyond" / "README.md"]:
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    return folder


def test_all_modules_and_data_files_are_built_and_nothing_else(clone: Path, tmp_path: Path) -> None:
    run(["setup.py", "-q", "build_py", "--build-lib", tmp_path / "built"], clone)
    built = {path.relative_to(tmp_path / "built").as_posix() for path in (tmp_path / "built").rglob("*.*")}
    assert built == set(sources())


@pytest.mark.slow
@pytest.mark.ray
def test_the_wheel_works_away_from_the_clone(clone: Path, tmp_path: Path) -> None:
    target, away = tmp_path / "installed", tmp_path / "away"
    away.mkdir()
    offline = ("--no-index", "--no-deps", "--no-build-isolation")
    run(["-m", "pip", "install", "-q", *offline, "--target", target, clone], away)
    path = os.pathsep.join([str(target), *(path for path in sys.path if Path(path).name == "site-packages")])

    def python(*arguments: object) -> str:
        # -S: the clone's editable installation would find what the wheel lacks.
        return run(["-S", *arguments], away, PYTHONPATH=path, COLUMNS="200")

    paths = sorted(name.removesuffix(".py") for name in sources() if name.endswith(".py"))
    modules = [name.replace("/", ".").removesuffix(".__init__") for name in paths]
    loop = f"for name in {modules}: importlib.import_module(name)"
    loaded = python("-c", f"import importlib, rllib_scale\n{loop}\nprint(rllib_scale.__file__)")
    assert loaded.strip() == str(target / "rllib_scale" / "__init__.py")
    rows = away / "rows.csv"
    python("-m", "rllib_scale", "evaluate", "fastest-idle", "--scales", 4, "--episodes", 1, "--output", rows)
    assert len(rows.read_text().splitlines()) == 2
    python("-m", "rllib_scale", "doctor")
