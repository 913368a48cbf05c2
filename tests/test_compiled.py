"""The cache of machine code: used again, and never for other sources than it was made from."""

import shutil
import subprocess
import sys
from pathlib import Path

from rllib_scale import compiled
from rllib_scale.simulator.heaps import push

INNER = "from package.compiled import compiled\n\n@compiled\ndef inner(x):\n    return x + {}\n"
OUTER = (
    "from package.compiled import compiled\nfrom package.simulator.inner import inner\n\n"
    "@compiled\ndef outer(x):\n    return 10 * inner(x)\n\n"
    "print(outer(1.0), sum(outer.stats.cache_hits.values()))\n"
)


def run(folder: Path) -> tuple[float, int]:
    command = [sys.executable, "-m", "package.outer"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    value, hits = done.stdout.split()
    said = done.stderr.splitlines()
    assert len(said) == (hits == "0"), "it says that it compiles, once"
    assert all(line.startswith("Compiling") for line in said)
    return float(value), int(hits)


def test_cached_code_is_used_again_but_not_after_a_change_of_what_it_calls(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "simulator").mkdir(parents=True)
    shutil.copy(compiled.__file__, package / "compiled.py")
    (package / "outer.py").write_text(OUTER)
    (package / "simulator" / "inner.py").write_text(INNER.format(1))
    assert run(tmp_path) == (20.0, 0)
    assert run(tmp_path) == (20.0, 1)
    (package / "simulator" / "inner.py").write_text(INNER.format(2))
    assert run(tmp_path) == (30.0, 0)


def test_what_compiled_functions_alone_call_cannot_be_called_from_python() -> None:
    assert not callable(push)
