"""What is installed: every module and data file, and nothing that tests or results need."""

import os
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {"rllib_scale": "rllib_scale", "analysis": "rllib_scale_analysis", "tune_configs": "rllib_scale/tune_configs"}
DATA = (
    *(
        "scenarios/*.yaml",
        "workloads/samples/*.json",
        "workloads/tables/*.json",
        "workloads/tables/NOTICE.md",
        "zoo/*/*.json",
        "zoo/*/*.safetensors",
    ),
    *("report/*.css", "report/*.html", "report/*.js", "*.yaml"),
)


def sources() -> dict[str, Path]:
    """Path in the installation -> file in the clone."""
    return {
        f"{package}/{path.relative_to(ROOT / folder).as_posix()}": path
        for folder, package in FOLDERS.items()
        for pattern in ("*.py", "**/*.py", *DATA)
        for path in (ROOT / folder).glob(pattern)
        if "studies" not in path.parts  # findings: their rows and scripts are in no package
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
    findings = [ROOT / "analysis" / "studies" / name for name in ("transfer/study.py", "beyond/README.md")]
    for path in [*sources().values(), ROOT / "tests" / "conftest.py", *findings]:
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    return folder


def test_all_modules_and_data_files_are_built_and_nothing_else(clone: Path, tmp_path: Path) -> None:
    run(["setup.py", "-q", "build_py", "--build-lib", tmp_path / "built"], clone)
    built = {path.relative_to(tmp_path / "built").as_posix() for path in (tmp_path / "built").rglob("*.*")}
    assert built == set(sources())
    run(["setup.py", "-q", "sdist", "--dist-dir", tmp_path], clone)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        packed = {name.partition("/")[2] for name in file.getnames()}
    assert {path.relative_to(ROOT).as_posix() for path in sources().values()} | {"setup.py"} <= packed


def test_data_derived_from_recordings_stands_beside_a_notice_of_source_and_licence() -> None:
    tables = ROOT / "rllib_scale" / "workloads" / "tables"
    rows = [row.split("|") for row in (tables / "NOTICE.md").read_text(encoding="utf-8").splitlines() if "`" in row]
    named = {row[1].strip(" `"): row[2:] for row in rows if len(row) > 4}
    assert set(named) == {path.name for path in tables.glob("*.json")}
    assert all("github.com/" in source and licence.strip() for source, licence, *_ in named.values())


COMMANDS = """
presets
methods
schedulers
scenarios
zoo context-price
evaluate zoo:context-price --scales 8 --episodes 1
simulate --workload sample:agents --scenario steady-0.7 --servers 8 --save-workload w.json --gantt g.png
simulate --scenario steady-0.9 --servers 32 --save-workload drawn.json
bounds steady-0.5 --scales 4 --episodes 1
fit-workload drawn.json --output fitted.json
validate table4
sweep smoke --set seeds=[1] --set methods=[scale] --results r
status r
report r
execute w.json --scenario steady-0.7 --servers 4 --time-scale 0.001
doctor
"""


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("form", ["wheel", "sdist"])
def test_what_is_built_works_away_from_the_clone(form: str, clone: Path, tmp_path: Path) -> None:
    target, away = tmp_path / "installed", tmp_path / "away"
    away.mkdir()
    build = f"from setuptools import build_meta; print(build_meta.build_{form}({str(tmp_path)!r}))"
    (tmp_path / "found").symlink_to(tmp_path / run(["-c", build], clone).splitlines()[-1])
    built = (tmp_path / "found").resolve()
    offline = ("--no-index", "--no-deps", "--no-build-isolation")
    run(["-m", "pip", "install", "-q", *offline, "--target", target, built], away)
    path = os.pathsep.join([str(target), *(path for path in sys.path if Path(path).name == "site-packages")])

    def python(*arguments: object) -> str:
        # -S: the clone's editable installation would find what the wheel lacks.
        return run(["-S", *arguments], away, PYTHONPATH=path, COLUMNS="200")

    paths = sorted(name.removesuffix(".py") for name in sources() if name.endswith(".py"))
    modules = [name.replace("/", ".").removesuffix(".__init__") for name in paths]
    loop = f"for name in {modules}: importlib.import_module(name)"
    loaded = python("-c", f"import importlib, rllib_scale\n{loop}\nprint(rllib_scale.__file__)")
    assert loaded.strip() == str(target / "rllib_scale" / "__init__.py")
    assert "compiled: rules" in python("-m", "rllib_scale", "doctor", "--compile")
    played = "import sys, rllib_scale.__main__ as program; sys.__stderr__ = sys.stdout; program.run()"
    plain = ["evaluate", "zoo:context-price", "zoo:scale", "--scales", "4", "--episodes", "1"]
    assert "Compiling" not in python("-c", played, *plain), "doctor --compile compiles it ahead"
    for line in COMMANDS.strip().splitlines():
        python("-m", "rllib_scale", *shlex.split(line))
    assert (away / "r" / "report" / "report.html").stat().st_size > 10_000
