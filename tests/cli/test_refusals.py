"""Bad input of every command: exit code 2 and one line that names the key, the value and what is valid."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from networks.observations import random_network
from rllib_scale.cli import main
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
evaluate fastest-idle --scales 3 | servers | 4 | 3
evaluate fastest-idle --episodes 0 | --episodes | 0
evaluate fastest-idle --seed -1 | --seed | -1
evaluate fastest-idle --mask all | --mask | feasible
evaluate fastest-idle --output rows.txt | .csv | .parquet
evaluate fastest-idle --scales 8 --episodes 1 --output file/rows.csv | file/rows.csv | cannot be written
evaluate fastest-idle --set workload.offered_lod=1 | offered_lod | did you mean 'offered_load'
evaluate fastest-idle --set workload.offered_load=much | offered_load | much
evaluate fastest-idle --set cluster=paper-17 | paper-17 | paper-16
evaluate fastest-idle --set cluster | key.path=value
evaluate fastest-idle --set episode=3 | episode | 3
evaluate torn --scales 16 --episodes 1 | policy.safetensors
evaluate mlp --scales 32 --episodes 1 --output rows.csv | N=16
evaluate zoo:scal | unknown policy 'zoo:scal' | did you mean 'zoo:scale'
simulate --scheduler fastest | unknown scheduler 'fastest' | did you mean 'fastest-idle'?
simulate --scheduler zoo:scal | unknown policy 'zoo:scal' | did you mean 'zoo:scale'
simulate --episode -1 | --episode | -1
simulate --horizon -3 | horizon_s | -3
simulate --workload missing.json | missing.json
simulate --workload fits-none.json | fits-none.json: workflow 0, task 0 (arrival_s 0.5) | memory_gb is 81.0 | 80.0
simulate --workload cycle.json --schedule s.csv | cycle.json: workflow 0 | cycle
simulate --video out.mp4 | --video out.mp4 | .gif
simulate --schedule file/s.csv | file/s.csv | cannot be written
simulate --gantt file/g.png | file/g.png | cannot be written
simulate --trace file/t | file/t | cannot be written
simulate --save-workload file/w | file/w | cannot be written
train --method scal | unknown method 'scal' | valid: scale, | `rllib-scale methods`
train --scenario papr | unknown scenario 'papr' | did you mean 'paper'? valid: paper,
validate missing.yaml | missing.yaml
validate SMOKE --set traning.epochs=1 | traning | training
validate SMOKE --set training.learning_rate=fast | learning_rate | fast
report missing | missing
status . | no manifest.json
zoo scal | unknown policy 'zoo:scal' | did you mean 'zoo:scale'
import copilot s | --output
import copilt s --output w.json | unknown format 'copilt' | 'copilot'
import copilot --output w.json | SOURCE
import copilot missing --output w.json | missing | no such file
import copilot empty --output w.json | the folder holds no file | .jsonl.gz
import copilot s --output w.json --set kv_mb_per_token=1 | mapping.KEY | kv_mb_per_token
import copilot s --output w.json --set mapping.kv_mb=1 | unknown key 'kv_mb' | kv_mb_per_token
import copilot s --output w.json --set mapping.kv_mb_per_token=-1 | kv_mb_per_token | -1
import copilot s --output w.json --set mapping.kv_mb_per_token=.nan | kv_mb_per_token | nan
import copilot s --output w.json --set mapping.duration=guessed | duration | fitted | recorded
import csv s --output w.json --unit turn | no settings
import csv a b c --output w.json | c: one file too many
execute fits.json --scheduler fastest-idel | unknown scheduler 'fastest-idel' | did you mean 'fastest-idle'?
execute fits.json --scenario churn | unknown scenario 'churn'
execute fits.json --time-scale 0 | --time-scale
execute fits.json --servers 1 | cluster.servers | 4 | 1
execute fits.json --servers 8 --scheduler mlp | trained at 16 | has 8
execute fits-none.json | fits-none.json: workflow 0, task 0 (arrival_s 0.5) | memory_gb is 81.0 | 80.0
"""
TASK = {"compute_gflop": 9.0, "memory_gb": 12.0, "output_gb": 0.4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that the commands name."""
    folder = tmp_path_factory.mktemp("refused")
    (folder / "file").write_text("")
    (folder / "empty").mkdir()
    for name, memory_gb, edges in (("fits", 1.0, []), ("fits-none", 81.0, []), ("cycle", 1.0, [[0, 1], [1, 0]])):
        workflow = {"arrival_s": 0.5, "tasks": [TASK | {"memory_gb": memory_gb}] * 2, "edges": edges}
        content = {"format": "rllib-scale-workload", "version": 1, "workflows": [workflow]}
        (folder / f"{name}.json").write_text(json.dumps(content))
    save_policy(folder / "mlp", random_network(method="ppo"), TrialConfig(method="ppo"), epochs=1)
    save_policy(folder / "torn", build_network(TrialConfig()), TrialConfig(), epochs=1)
    tensors = folder / "torn" / TENSORS
    tensors.write_bytes(tensors.read_bytes()[:-8])
    return folder


@pytest.mark.parametrize("row", REFUSED.strip().splitlines())
def test_bad_input_is_one_line_and_writes_nothing(row: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("Ray was started")

    monkeypatch.setattr("rllib_scale.clusters.session.ray_session", started)
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    command, *parts = row.split(" | ")
    done = CliRunner().invoke(main, shlex.split(command.replace("SMOKE", str(SMOKE))))
    assert done.exit_code == 2, (done.exit_code, done.exception)
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert all(part in line for part in parts), line
    assert sorted(folder.rglob("*")) == before
