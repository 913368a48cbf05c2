"""A checkpoint of a version whose pickles name other things is refused in one line."""

import json
from pathlib import Path

import pytest

from rllib_scale.errors import UserError
from rllib_scale.results.storage import Location
from rllib_scale.sweeps.checkpoints import CONTENTS, check_format, seal


def test_a_checkpoint_of_another_format_is_refused(tmp_path: Path) -> None:
    seal(tmp_path, 3)
    check_format(Location(str(tmp_path)))
    contents = json.loads((tmp_path / CONTENTS).read_text())
    (tmp_path / CONTENTS).write_text(json.dumps(contents | {"format": 1, "version": "0.2.0"}))
    with pytest.raises(UserError, match=r"version 0\.2\.0 of rllib-scale left this training unfinished.*--results"):
        check_format(Location(str(tmp_path)))
