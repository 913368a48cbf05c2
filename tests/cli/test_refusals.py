"""Bad input of every command: exit code 2 and one line that names the key, the value and what is valid.

What a sweep's YAML must not say stands in `tests/config/test_refused_settings.py`.
"""

from __future__ import annotations

import itertools
import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from networks.observations import random_network
from refused import refused
from rllib_scale.cli import main
from rllib_scale.config import TrialConfig
from rllib_scale.loading import sweep_from
from rllib_scale.networks.build import build_network
from rllib_scale.policies.policy import TENSORS, save_policy
from workloads.mutations import mutations

SMOKE = Path(__file__).parents[2] / "tune_configs" / "smoke.yaml"
REFUSED = """
swep | swep
evaluate | POLICY
evaluate fastest | unknown scheduler 'fastest' | valid: fastest-idle, | `rllib-scale schedulers`
evaluate fastest-idle --scenario papr | unknown scenario 'papr' | `rllib-scale scenarios`
evaluate fastest-idle --scales 16,x | --scales | 16,x
evaluate fastest-idle --scales 3 | servers | 4 | 3
evaluate fastest-idle --output rows.txt | .csv | .parquet
evaluate fastest-idle --scales 8 --episodes 1 --output file/rows.csv | file/rows.csv | cannot be written
evaluate fastest-idle --set episode=3 | episode | 3
evaluate fastest-idle --episodes 1000000000 | --episodes | 100000
evaluate torn --scales 16 --episodes 1 | policy.safetensors
evaluate nan --scales 16 --episodes 1 | policy.safetensors | is not finite
evaluate relabelled --scales 16 --episodes 1 | policy.safetensors | torch.int32, not weights
evaluate mlp --scales 32 --episodes 1 --output rows.csv | trained at 16 | got 32
evaluate zoo:scal | unknown policy 'zoo:scal' | did you mean 'zoo:scale'
simulate --horizon -3 | horizon_s | -3
simulate --horizon 1e7 | tasks on 16 servers
simulate --servers 1000000 | 1,000,000 servers
simulate --servers 4096 --gantt g.png | --gantt | 2,000
simulate --gantt x.jpg | --gantt x.jpg | .png
simulate --scheduler reserve --scheduler fastest-idle --trace t.json | --trace | 2 are given
simulate --schedule x.parquet | --schedule x.parquet | .csv
simulate --trace t.json --save-workload t.json | --trace | same file
simulate --trace empty | cannot be written | no file
simulate --workload pipe | pipe | valid: a file
simulate --workload fits.json --seed 3 | --seed | leave one out
simulate --workload fits.json --episode 3 | --episode | leave one out
evaluate fastest-idle --workload fits.json --episodes 3 | --episodes | leave one out
simulate --workload fits-none.json | fits-none.json: workflow 0, task 0 (arrival_s 0.5) | memory_gb is 81.0 | 80.0
simulate --workload cycle.json --schedule s.csv | cycle.json: workflow 0 | cycle
simulate --video out.mp4 | --video out.mp4 | .gif
simulate --gantt file/g.png | file/g.png | cannot be written
simulate --trace file/t | file/t | cannot be written
simulate --save-workload file/w | file/w | cannot be written
train --method scal | unknown method 'scal' | valid: scale, | `rllib-scale methods`
validate SMOKE --set traning.epochs=1 | traning | training
sweep link | link | valid: a file
sweep NAME | name too long
sweep SMOKE --results '' | --results '' | empty
sweep SMOKE --results r --reuse empty | --reuse | empty
sweep SMOKE --results r --set env.episode.horizon_s=1e9 --set evaluation.scenarios=[train] | for 1e+09 s
sweep SMOKE --results r --set evaluation.scales=[1000000] | tasks on 1,000,000 servers
fetch empty sub | empty | no results folder
report missing | missing
status . | no manifest.json
zoo scal | unknown policy 'zoo:scal' | did you mean 'zoo:scale'
import copilot s | --output
import copilt s --output w.json | unknown format 'copilt' | 'copilot'
import copilot missing --output w.json | missing | no such file
import copilot empty --output w.json | the folder has no file | .jsonl.gz
import copilot s --output w.json --set kv_mb_per_token=1 | mapping.KEY | kv_mb_per_token
import copilot s --output w.json --set mapping.kv_mb=1 | unknown key 'kv_mb' | kv_mb_per_token
import copilot s --output w.json --set mapping.duration=guessed | duration | fitted | recorded
import tracelab link --output w.json | link | valid: a file
import csv file --output file/w.json | --output | cannot be written
fit-workload file --output file/t.json | --output | cannot be written
import csv s --output w.json --set mapping.unit=turn | no settings
import csv a b c --output w.json | c: one file too many
execute fits.json --scheduler fastest-idel | unknown scheduler 'fastest-idel' | did you mean 'fastest-idle'?
execute fits.json --schedule x.txt | --schedule x.txt | .csv
execute fits.json --servers 1 | cluster.servers | 4 | 1
execute fits.json --servers 8 --scheduler mlp | trained at 16 | got 8
execute fits-none.json | fits-none.json: workflow 0, task 0 (arrival_s 0.5) | memory_gb is 81.0 | 80.0
"""
TASK = {"compute_gflop": 9.0, "memory_gb": 12.0, "output_gb": 0.4}


def workload(memory_gb: float, edges: list[list[int]]) -> dict[str, Any]:
    workflow = {"arrival_s": 0.5, "tasks": [TASK | {"memory_gb": memory_gb}] * 2, "edges": edges}
    return {"format": "rllib-scale-workload", "version": 1, "workflows": [workflow]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that the commands name."""
    folder = tmp_path_factory.mktemp("refused")
    (folder / "file").write_text("")
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe")
    for name, memory_gb, edges in (("fits", 1.0, []), ("fits-none", 81.0, []), ("cycle", 1.0, [[0, 1], [1, 0]])):
        (folder / f"{name}.json").write_text(json.dumps(workload(memory_gb, edges)))
    save_policy(folder / "mlp", random_network(method="ppo"), TrialConfig(method="ppo"), epochs=1)
    save_policy(folder / "torn", build_network(TrialConfig()), TrialConfig(), epochs=1)
    tensors = folder / "torn" / TENSORS
    tensors.write_bytes(tensors.read_bytes()[:-8])
    changes: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "nan": lambda tensor: tensor * torch.nan,
        "relabelled": lambda tensor: tensor.view(torch.int32),
    }
    for name, change in changes.items():
        weights = {key: change(tensor) for key, tensor in random_network().state_dict().items()}
        changed: Any = SimpleNamespace(state_dict=lambda weights=weights: weights)
        save_policy(folder / name, changed, TrialConfig(), epochs=1)
    return folder


@pytest.mark.parametrize("row", REFUSED.strip().splitlines())
def test_bad_input_is_one_line_and_writes_nothing(row: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("Ray was started")

    # Where it is imported before where it is defined: a module that is imported meanwhile would keep the replacement.
    for module in ("sweeps.run", "sweeps.reproduce", "live.library", "clusters.session"):
        monkeypatch.setattr(f"rllib_scale.{module}.ray_session", started)
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    command, *parts = row.split(" | ")
    line = refused(*shlex.split(command.replace("SMOKE", str(SMOKE)).replace("NAME", "a" * 300)))
    assert all(part in line for part in parts), line
    assert sorted(folder.rglob("*")) == before


SWEEP = {
    "name": "bad",
    "methods": ["scale", "crossattn"],
    "grid": {"srr.lambda_kl": [0, 0.1]},
    "training": {"problems": {"servers": [8]}},
    "evaluation": {"scales": [4], "episodes": 1, "heuristics": ["reserve:waiting=2"], "scenarios": ["paper"]},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("bad.yaml", "validate bad.yaml"),
        ("fits.json", "evaluate fastest-idle --scales 4 --workload fits.json"),
        ("mlp/policy.json", "evaluate mlp --scales 16 --episodes 1"),
    ],
)
def test_damaged_files_are_read_or_refused(
    file: str, command: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mlp").mkdir()
    for name in ("fits.json", "mlp/policy.json", f"mlp/{TENSORS}"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    sweep = sweep_from(SWEEP, "sweep").model_dump(mode="json")
    good = sweep if file == "bad.yaml" else json.loads((tmp_path / file).read_text())
    (tmp_path / file).write_text(json.dumps(good))
    assert CliRunner().invoke(main, shlex.split(command)).exit_code == 0
    count = 0
    for damaged in itertools.islice(mutations(2, good), 200):
        (tmp_path / file).write_bytes(damaged)
        done = CliRunner().invoke(main, shlex.split(command))
        assert done.exit_code in (0, 2), (damaged, repr(done.exception))
        if done.exit_code == 2:
            (line,) = done.stderr.splitlines()
            assert line.startswith(f"Error: {file.replace('/', ': ')}"), (damaged, line)
            count += 1
    assert count > 50
