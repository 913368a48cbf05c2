"""The cache of machine code: used again, and never for other sources or values than it was made from."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numba.core import bytecode, interpreter, ir
from numba.core.dispatcher import Dispatcher

import rllib_scale
from rllib_scale import code_cache, compiled
from rllib_scale.observation import orders
from rllib_scale.simulator.heaps import push

CONFIG = "FIELDS = ['low', 'high']\nNAMES = ['add', 'multiply']\nFACTOR = 2.0\n"
"""A module that is none of the sources of compiled code."""
INNER = """import numpy as np
from typing import NamedTuple
from package.compiled import compiled, internal
from package.config import FACTOR, FIELDS, NAMES
ADD = NAMES.index('add')
RECORD = np.dtype([(name, 'f8') for name in FIELDS])
class Rule(NamedTuple):
    kind: int

@internal
def factor(x):
    return x * FACTOR

@compiled
def inner(record, kind):
    return factor(record[0].low) + 1 if Rule(kind).kind == ADD else 0.0
"""
OUTER = """import numpy as np
from package.compiled import compiled
from package.simulator.inner import inner

@compiled
def outer(numbers, kind):
    return 10 * inner(numbers.view(RECORD), kind)

from package.simulator.inner import RECORD  # after the function: it is taken when it is compiled
print(outer(np.array([1.0, 5.0]), 0), sum(outer.stats.cache_hits.values()))
"""


def make_package(folder: Path) -> Path:
    """A package with the files of this one that compile, and a chain of calls through its modules."""
    package = folder / "package"
    (package / "simulator").mkdir(parents=True)
    for module in (compiled, code_cache):
        path = Path(str(module.__file__))
        (package / path.name).write_text(path.read_text().replace("rllib_scale", "package"))
    (package / "config.py").write_text(CONFIG)
    (package / "outer.py").write_text(OUTER)
    (package / "simulator" / "inner.py").write_text(INNER)
    return package


def run(folder: Path, **environment: str) -> tuple[float, int, list[str]]:
    """What the outer function returns, how often its code was in the cache, and what else was said."""
    command, own = [sys.executable, "-m", "package.outer"], {"NUMBA_CACHE_DIR": ""}
    env = os.environ | own | environment
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, env=env)
    value, hits = done.stdout.split()
    said = done.stderr.splitlines()
    compiling = [line for line in said if line.startswith("Compiling")]
    assert len(compiling) == (hits == "0"), "it says that it compiles, once"
    return float(value), int(hits), [line for line in said if line not in compiling]


def test_cached_code_is_used_again_but_not_for_other_sources_or_values(tmp_path: Path) -> None:
    package = make_package(tmp_path)
    config, inner = package / "config.py", package / "simulator" / "inner.py"
    assert run(tmp_path) == (30.0, 0, [])
    assert run(tmp_path) == (30.0, 1, [])
    inner.write_text(INNER.replace("+ 1", "+ 2"))
    assert run(tmp_path) == (40.0, 0, []), "what it calls has changed"
    swapped = CONFIG.replace("2.0", "3.0").replace("'low', 'high'", "'high', 'low'")
    config.write_text(swapped)
    assert run(tmp_path) == (170.0, 0, []), "a constant, and the layout of a record"
    config.write_text(swapped.replace("'add', 'multiply'", "'multiply', 'add'"))
    assert run(tmp_path) == (0.0, 0, []), "the position of a name"


def test_where_no_folder_can_be_written_code_is_kept_in_a_temporary_one(tmp_path: Path) -> None:
    package, temporary = make_package(tmp_path), tmp_path / "temporary"
    temporary.mkdir()
    for folder in (package, package / "simulator"):
        (folder / "__pycache__").write_text("no folder: not even root can write into it")
    nowhere = {"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null", "TMPDIR": str(temporary)}
    value, hits, said = run(tmp_path, **nowhere)
    assert (value, hits) == (30.0, 0)
    assert len(said) == 1
    assert str(temporary) in said[0]
    assert "NUMBA_CACHE_DIR" in said[0]
    assert run(tmp_path, **nowhere)[:2] == (30.0, 1)
    (kept,) = temporary.iterdir()
    assert kept.stat().st_mode & 0o077 == 0, "code that is loaded from there runs"
    kept.chmod(0o777)
    assert run(tmp_path, **nowhere)[:2] == (30.0, 0), "others could have written it"


def compiled_functions() -> Iterator[tuple[ModuleType, Any]]:
    """All functions that this package compiles, each with its module."""
    package = Path(rllib_scale.__file__).parent
    for found in walk_packages(rllib_scale.__path__, "rllib_scale."):
        path = package.joinpath(*found.name.split(".")[1:])
        source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if "rllib_scale.compiled" not in source.read_text() and "compiled.arithmetic" not in source.read_text():
            continue
        module = importlib.import_module(found.name)
        for value in vars(module).values():
            dispatcher = value._dispatcher if isinstance(value, compiled._Internal) else value
            if isinstance(dispatcher, Dispatcher):
                yield module, dispatcher.py_func


def frozen_names(function: Any) -> set[str]:
    """Names of the module whose values stand in the code, by numba's own reading of the function."""
    identity = bytecode.FunctionIdentity.from_function(function)
    blocks = interpreter.Interpreter(identity).interpret(bytecode.ByteCode(identity)).blocks.values()
    values = [each.value for block in blocks for each in block.find_insts(ir.Assign)]
    return {each.name for each in values if isinstance(each, ir.Global)} & {*function.__globals__}


def changed(value: Any) -> Any:
    """Another value of the same kind; of a function another one."""
    if isinstance(value, np.dtype):
        return np.dtype(value.descr[::-1]) if value.names else np.dtype("f4" if value == np.dtype("f8") else "f8")
    if isinstance(value, int | float | np.generic):
        return -1.0 - value if isinstance(value, float) else type(value)(value + 1)
    return (*value, *value[:1]) if isinstance(value, tuple) else max


def test_every_value_that_compiled_code_takes_is_in_the_name_of_the_cached_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package, seen, stamp = Path(rllib_scale.__file__).parent, 0, code_cache.values_stamp.__wrapped__
    sources = {path for pattern in code_cache.SOURCES_OF_CODE for path in package.glob(pattern)}
    for function in {function for _, function in compiled_functions()}:
        assert Path(function.__code__.co_filename) in sources, "a module with compiled functions is one of the sources"
        before = stamp(function)
        for name in frozen_names(function):
            with monkeypatch.context() as patch:
                patch.setitem(function.__globals__, name, changed(function.__globals__[name]))
                assert stamp(function) != before, f"{function.__qualname__} is compiled with {name}"
            seen += 1
    assert seen > 1000


def test_what_has_no_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "LONGEST_HOP", {"longest-hop": 0})
    with pytest.raises(TypeError, match=r"orders\.order_key is compiled with LONGEST_HOP: .*, a dict"):
        code_cache.values_stamp.__wrapped__(orders.order_key._dispatcher.py_func)


def test_what_compiled_functions_alone_call_cannot_be_called_from_python() -> None:
    assert not callable(push)
