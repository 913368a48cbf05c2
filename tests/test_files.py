"""Files appear whole or not at all, whenever a write breaks off."""

from __future__ import annotations

from pathlib import Path

import pytest

from rllib_scale.errors import UserError
from rllib_scale.files import write_atomic


def test_until_a_file_is_whole_its_readers_see_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "table"
    write_atomic(path, lambda p: p.write_text("old"))

    def write(temporary: Path) -> None:
        temporary.write_text("half")
        assert path.read_text() == "old"
        raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match="No space left on device"):
        write_atomic(path, write)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["old"]
