"""The scripts in examples/ run as they stand there."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rllib_scale.cli import main

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
def test_simulate_plays_the_worst_instance_to_the_same_response(tmp_path: Path) -> None:
    names = ("large-only", "reserve")
    done = subprocess.run(
        [sys.executable, EXAMPLES / "adversary.py", *names, "--evaluations", "64"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    *_, found = re.findall(r"large-only (\S+) s, reserve (\S+) s: ratio (\S+)", done.stdout)
    for name, response in zip(names, found, strict=False):
        worst = ["--workload", str(tmp_path / "worst.json"), "--config", str(tmp_path / "worst.yaml")]
        played = CliRunner().invoke(main, ["simulate", *worst, "--scheduler", name, "--json"])
        assert f"{json.loads(played.stdout)['response_mean_s']:.2f}" == response
    assert float(found[2]) > 1.2  # a rule that waits for few servers is easily embarrassed
