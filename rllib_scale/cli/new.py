"""The command that begins something of one's own: a file to change, and its test."""

from __future__ import annotations

import importlib.util
import keyword
from pathlib import Path

import click

from rllib_scale.cli.terminal import say
from rllib_scale.errors import UserError

SCHEDULER = '''"""A scheduler of one's own: `rllib-scale evaluate {module}:{name} --scales 16` plays it."""

import numpy as np

from rllib_scale.observation.feature_sets import ObservationView
from rllib_scale.schedulers.base import Rule


class {name}(Rule):
    """Change `rate`: everything else is there."""

    description = "the idle server that fits and would be done first"

    def rate(self, v: ObservationView) -> np.ndarray:
        """Scores (B, N) of N servers in each of B clusters: the highest is chosen, -inf never.

        Some of what `v` has: task_compute (B, 1) GFLOP; capacity GFLOPS, transfer s and feasible (idle, and the task
        fits), all (B, N).
        """
        return np.where(v.feasible, -(v.transfer + v.execution_s), -np.inf)
'''
SCHEDULER_TEST = '''"""Run it with pytest."""

from {module} import {name}

from rllib_scale.config import scenario
from rllib_scale.evaluation.play import evaluate


def test_all_that_arrives_is_done() -> None:
    env = scenario("steady-0.5").at_scale(4)
    rows = evaluate({name}(env.observation, env.episode.mask), env, seed=1, episodes=2)
    assert [row["completed"] for row in rows] == [row["arrived"] for row in rows]
'''


@click.group()
def new() -> None:
    """Begin something of your own."""


@new.command()
@click.argument("name")
@click.option("--folder", type=click.Path(path_type=Path), default=".", show_default=True, help="Where the files go.")
def scheduler(name: str, folder: Path) -> None:
    """Write NAME.py, a scheduler to change, and test_NAME.py."""
    from rllib_scale.files import write_atomic

    module = name.replace("-", "_")
    if not module.isidentifier() or not module.isascii() or keyword.iskeyword(module) or module != module.lower():
        raise UserError(f"NAME {name!r}: must be lower-case letters, digits and _, as my_rule")
    if importlib.util.find_spec(module) is not None:
        raise UserError(f"NAME {name!r}: there is a module of that name already; give another")
    words = {"module": module, "name": "".join(word.capitalize() for word in module.split("_"))}
    files = {folder / f"{module}.py": SCHEDULER, folder / f"test_{module}.py": SCHEDULER_TEST}
    for path in files:
        if path.exists():
            raise UserError(f"{path}: is there already; give another NAME, or move it away")
    for path, template in files.items():
        text = template.format(**words)
        write_atomic(path, lambda temporary, text=text: temporary.write_text(text, encoding="utf-8"))  # type: ignore[misc]
        say(f"wrote {path}")
    say(f"play it: rllib-scale evaluate {module}:{words['name']} --scales 16 --episodes 10")
