"""docs/extending.md: every block is done, from top to bottom in one folder, as a reader would."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from rllib_scale import plugins
from rllib_scale.cli import main

PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text(encoding="utf-8")
NAMES = ("rule", "rules", "dispatchers", "things", "method")
MODULES = tuple(f"my_{name}" for name in NAMES)
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, flags=re.DOTALL)


def test_every_block_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(plugins, "_shipped", {})
    played = 0
    try:
        for language, text in BLOCKS:
            named = re.match(r"# (\S+)\n", text)
            if named:
                (tmp_path / named[1]).write_text(text, encoding="utf-8")
            elif language == "toml":
                declared = tomllib.loads(text)["project"]["entry-points"]
                assert set(declared) < set(plugins.GROUPS.values())
                for kind, group in plugins.GROUPS.items():
                    assert group.rpartition(".")[2] in PAGE
                    assert all(plugins.load(kind, path, []) for path in declared.get(group, {}).values())
            else:
                for line in text.splitlines():
                    program, *arguments = shlex.split(line)
                    if program == "echo":
                        subprocess.run(line, shell=True, check=True)
                        continue
                    assert program == "rllib-scale"
                    done = CliRunner().invoke(main, arguments)
                    assert done.exit_code == 0, (line, done.output)
                    played += 1
        assert played >= 6
        assert all(f"## Your first {part}\n" in PAGE for part in ("rule", "scenario", "method"))
        assert len(PAGE.split()) <= 1000
        assert set(plugins.sources()) == {str(tmp_path / f"{name}.py") for name in MODULES}
    finally:
        for name in MODULES:
            sys.modules.pop(name, None)
