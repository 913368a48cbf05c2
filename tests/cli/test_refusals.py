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

from bad_inputs import cases, outcome
from networks.observations import random_network
from refused import refused
from rllib_scale.config import TrialConfig
from rllib_scale.networks.build import build_network
from rllib_scale.policies.policy import TENSORS, save_policy

SMOKE = Path(__file__).parents[2] / "tune_configs" / "smoke.yaml"
REFUSED = """
swep | swep
evaluate | POLICY
evaluate fastest | unknown scheduler 'fastest' | valid: fastest-idle, | `rllib-scale schedulers`
evaluate fastest-idle --scenario papr | unknown scenario 'papr' | `rllib-scale scenarios`
evaluate fastest-idle --scales 16,x | --scales | 16,x
evaluate fastest-idle --scales 1_6 | --scales | 1_6
evaluate fastest-idle --scales 0 | servers | 1 | 0
evaluate fastest-idle --scales 2 | memory_gb.high is 80 | tiers of the 2 servers: small (1), medium (1) | 32
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
simulate --set a 3 | --set 'a' | KEY=VALUE | --set a=VALUE
evaluate fastest-idle --set episode.horizon_s 3 | --set 'episode.horizon_s' | --set episode.horizon_s=VALUE
validate SMOKE --set algorithm.epochs 3 | --set 'algorithm.epochs' | --set algorithm.epochs=VALUE
import copilot s --output w.json --set mapping.duration fitted | --set 'mapping.duration' | KEY=VALUE
simulate --set offered_load=70 | --set: unknown key 'offered_load' | did you mean 'workload.offered_load'
simulate --set workload.offered_load=70 | offered_load 70 | 0.7 is 70 % | at most 10
simulate --scheduler scale | scheduler 'scale' | is a method | zoo:scale | train --method scale
evaluate ppo | scheduler 'ppo' | is a method | train --method ppo
validate SMOKE --set evaluation.heuristics=[scale] | evaluation.heuristics | 'scale' | is a method
simulate --cluster bad.yaml | bad.yaml: cluster.tiers
simulate --config bad.yaml --set episode.horizon_s=9 | bad.yaml, --set: cluster.tiers
import copilot s --output w.json --cluster bad.yaml | bad.yaml: cluster.tiers
simulate --workload void.json | void.json: is empty
validate void.yaml | void.yaml: is empty
evaluate fastest-idle --cluster void.yaml | void.yaml: is empty
simulate --horizon 1e7 | tasks on 16 servers
simulate --servers 1000000 | 1,000,000 servers
simulate --servers 4096 --gantt g.png | --gantt | 2,000
simulate --gantt x.jpg | --gantt x.jpg | .png
simulate --scheduler reserve --scheduler fastest-idle --trace t.json | --trace | 2 are given
simulate --schedule x.parquet | --schedule x.parquet | .csv
simulate --trace t.json --save-workload t.json | --trace | same file
simulate --trace empty.json | cannot be written | no file
simulate --trace trace.txt | must end in .json
simulate --set 'cluster={servers: -1}' --servers 8 | cluster.servers | -1
simulate --set workload.offered_load=0.5 --set workload.arrival_rate_per_server=0.1 | offered_load 0.5 | server 0.1
simulate --set episode.arrivals_until_s=100 --horizon 10 | episode.arrivals_until_s 100 | horizon_s 10
simulate --workload fits.json --horizon 0.5 | fits.json: its first workflow arrives at 0.5 s
simulate --workload fits.json --save-workload fits.json | --save-workload fits.json: would replace fits.json
simulate --scheduler mlp --servers 16 --trace mlp/policy.json | would replace mlp/policy.json
simulate --config linked.json --trace fits.json | --trace fits.json: would replace linked.json
simulate --workload pipe | pipe | valid: a file
simulate --workload fits.json --seed 3 | --seed | leave one out
simulate --workload fits.json --episode 3 | --episode | leave one out
evaluate fastest-idle --workload fits.json --episodes 3 | --episodes | leave one out
simulate --workload fits-none.json | fits-none.json: workflow 0, task 0 (arrival_s 0.5) | memory_gb is 81.0 | 80.0
simulate --workload cycle.json --schedule s.csv | cycle.json: workflow 0 | cycle
simulate --video out.mp4 | --video out.mp4 | .gif
simulate --gantt file/g.png | file/g.png | cannot be written
simulate --trace file/t.json | file/t.json | cannot be written
simulate --save-workload file/w.json | file/w.json | cannot be written
tryout fastest-idle | --workload: is missing
tryout fastest-idel --workload fits.json | --workload: arrives all at once | workload.offered_load
tryout heft --workload pair.json --set information.workflows=revealed | heft plans workflows as a whole
tryout reserve --workload pair.json --set workload=3 | workload | mapping
tryout reserve --workload pair.json --output pair.json | --output pair.json: must end in .csv
train --method scal | unknown method 'scal' | valid: scale, | `rllib-scale methods`
validate SMOKE --set algoritm.epochs=1 | algoritm | algorithm
sweep link | link | valid: a file
sweep NAME | unknown preset
sweep table44 | unknown preset 'table44' | did you mean 'table4' | `rllib-scale presets`
sweep table4.yaml | no such file | 'table4'
validate table5 | 'table5' is a preset and a file here | ./table5
evaluate fastest-idle --workload sample:agent | unknown workload 'sample:agent' | did you mean 'sample:agents'
sweep SMOKE --results '' | --results '' | empty
sweep SMOKE --results r --reuse empty | --reuse | empty
sweep SMOKE --results r --set env.episode.horizon_s=1e9 --set evaluation.scenarios=[train] | for 1e+09 s
sweep SMOKE --results r --set evaluation.scales=[1000000] | tasks on 1,000,000 servers
fetch empty sub | empty | no results folder
report missing | missing
status . | no manifest.json
status NAME | File name too long
zoo scal | unknown policy 'zoo:scal' | did you mean 'zoo:scale'
import copilot s | --output
import copilt s --output w.json | unknown format 'copilt' | 'copilot'
import copilot missing --output w.json | missing | no such file
import copilot empty --output w.json | the folder has no file | .jsonl.gz
import copilot s --output w.json --set kv_mb_per_token=1 | mapping.KEY | kv_mb_per_token
import copilot s --output w.json --set mapping.kv_mb=1 | unknown key 'kv_mb' | kv_mb_per_token
import copilot s --output w.json --set mapping.duration=guessed | duration | fitted | recorded
import tracelab link --output w.json | link | valid: a file
import csv . --output tasks.csv | --output tasks.csv: must end in .json
import copilot . --output mlp/policy.json | would replace mlp/policy.json
fit-workload fits.json --output fits.json | --output fits.json: would replace fits.json
fit-workload linked.json --output fits.json | --output fits.json: would replace linked.json
import csv file --output file/w.json | --output | cannot be written
fit-workload file --output file/t.json | --output | cannot be written
import csv s --output w.json --set mapping.unit=turn | no settings
import csv a b c --output w.json | c: one file too many
export mlp --onnx mlp.txt | --onnx mlp.txt: must end in .onnx
export mlp --onnx mlp.onnx | --onnx mlp.onnx: would replace mlp/policy.json
execute fits.json --scheduler fastest-idel | unknown scheduler 'fastest-idel' | did you mean 'fastest-idle'?
execute fits.json --schedule x.txt | --schedule x.txt | .csv
execute fits.json --guard heft | guard heft: plans ahead
execute fits-large.json --servers 1 | fits-large.json: workflow 0, task 0 (arrival_s 0.5) | memory_gb is 33.0 | 32.0
evaluate fastest-idle --workload fits-large.json --scales 2 | fits-large.json: workflow 0, task 0 | is 33.0 | 32.0
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
    for name in ("empty", "empty.json"):
        (folder / name).mkdir()
    (folder / "table5").write_text("")
    for name in ("void.json", "void.yaml"):
        (folder / name).write_text("\n")
    (folder / "bad.yaml").write_text("cluster: {tiers: 3}")
    (folder / "link").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe")
    for name, memory_gb, edges in (
        ("fits", 1.0, []),
        ("fits-none", 81.0, []),
        ("fits-large", 33.0, []),
        ("cycle", 1.0, [[0, 1], [1, 0]]),
    ):
        (folder / f"{name}.json").write_text(json.dumps(workload(memory_gb, edges)))
    later = workload(1.0, [])["workflows"][0] | {"arrival_s": 9.0}
    pair = workload(1.0, []) | {"workflows": [*workload(1.0, [])["workflows"], later] * 3}
    (folder / "pair.json").write_text(json.dumps(pair))
    (folder / "linked.json").symlink_to("fits.json")
    save_policy(folder / "mlp", random_network(method="ppo"), TrialConfig.of("ppo"), epochs=1)
    (folder / "mlp.onnx").symlink_to("mlp/policy.json")
    save_policy(folder / "torn", build_network(TrialConfig.of()), TrialConfig.of(), epochs=1)
    tensors = folder / "torn" / TENSORS
    tensors.write_bytes(tensors.read_bytes()[:-8])
    changes: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "nan": lambda tensor: tensor * torch.nan,
        "relabelled": lambda tensor: tensor.view(torch.int32),
    }
    for name, change in changes.items():
        weights = {key: change(tensor) for key, tensor in random_network().state_dict().items()}
        changed: Any = SimpleNamespace(state_dict=lambda weights=weights: weights)
        save_policy(folder / name, changed, TrialConfig.of(), epochs=1)
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


@pytest.mark.parametrize("count", [22, pytest.param(500, marks=pytest.mark.slow)])
def test_any_input_runs_or_is_refused_in_one_line(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, ran = [], 0
    (tmp_path / "made").mkdir()
    for number, case in enumerate(itertools.islice(cases(count, tmp_path / "made"), count)):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        found = outcome(case, folder)
        ran += found == "runs"
        if found != "runs" and not found.startswith("Error: "):
            wrong.append((case.kind, case.command, found))
    assert wrong == []
    assert 0 < ran < count
