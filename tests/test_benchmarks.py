"""The benchmarks at tiny sizes: what they yield, and that the plain loop is the PPO that it is compared with."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner

from benchmarks import agreement, decide, measure, net, rates, replicas, scale, sim
from benchmarks.__main__ import main
from benchmarks.measure import Measure
from benchmarks.plain_ppo import PlainPPO
from rllib_scale.config import SRRConfig, TrialConfig
from rllib_scale.rl.ppo.loss import Rows

TINY = TrialConfig.of(algorithm={"epochs": 4, "steps_per_epoch": 64, "minibatch_size": 32, "passes": 2, "num_envs": 2})


@pytest.fixture(scope="module")
def training_env(local_ray: None) -> None:
    """Registered again: what an earlier Ray of this process knew ended with it."""
    from ray.tune.registry import register_env

    from rllib_scale.rl.environment import TRAINING_ENV, make_env

    register_env(TRAINING_ENV, make_env)


def check(measures: list[Measure], rounds: int) -> dict[str, dict[str, Any]]:
    """Measures by name, as they stand in the JSON."""
    rows = {m.name: json.loads(json.dumps(m.to_dict())) for m in measures}
    assert len(rows) == len(measures), "names are unique"
    for row in rows.values():
        assert row.keys() == {"name", "unit", "value", "wall", "bar", "aim", "at_most", "rounds", "verdict"}
        assert row["value"] == row["value"]
        assert row["verdict"] in ("", "missed", "bar", "aim")
        assert (row["verdict"] == "") == (row["bar"] is None)
    assert any(len(row["rounds"]) == rounds for row in rows.values())
    return rows


def test_the_command_writes_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim, "run", partial(sim.run, servers=(16,), batches=(2,), steps=64))
    done = CliRunner().invoke(main, ["sim", "--rounds", "2", "--output", str(tmp_path / "sim.json")])
    assert done.exit_code == 0, done.output
    content = json.loads((tmp_path / "sim.json").read_text(encoding="utf-8"))
    assert content.keys() == {"machine", "versions", "rounds", "benchmarks"}
    assert content["machine"].keys() == {"model", "cores", "load_average"}
    assert content["versions"]["torch"] == torch.__version__
    rows = {row["name"]: row for row in content["benchmarks"]["sim"]}
    (first, second) = rows["ours / slow reference, N=16, batch 2"]["rounds"]
    assert first.keys() == second.keys() == {"ours", "reference"}
    assert min(first["ours"].values()) > 0


@pytest.mark.slow
def test_replicas() -> None:
    rows = check(replicas.run(1, replicas=(2,), end_s=300.0), 1)
    assert rows["calls a core, lmetric:gate=1, 2 replicas, 20 sessions each"]["value"] > 0
    assert rows["a call on replicas / one of fixed service, both N=16 (speed)"]["bar"] == 1 / 3


@pytest.mark.slow
def test_network() -> None:
    rows = check(net.run(2, servers=(4,), batch=2, repeats=2), 2)
    for other in ("nn.MultiheadAttention", "our torch modules", "our torch modules by torch.compile"):
        assert rows[f"ours / {other}, forward + backward, B=2, N=4"]["value"] > 0


@pytest.mark.slow
def test_decision() -> None:
    rows = check(decide.run(2, servers=(16, 256, 512), calls=3), 2)
    assert rows["decision, B=1, N=16: p50"]["bar"] == 150
    assert "decision: exponent of growth in N, 256 to 512" in rows
    assert rows["zoo:context-price, 4 episodes side by side, N=1024: a visit"]["value"] > 0
    assert decide.exponent([256, 1024, 4096], [2.0, 4.0, 8.0]) == pytest.approx(0.5)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.filterwarnings("ignore:.*rllib-single-agent-env-v0 already in registry")
def test_training(training_env: None) -> None:
    from benchmarks import train

    rows = check(train.run(1, epochs=1, trial=TINY), 1)
    (only,) = rows["training, ours / stock RLlib"]["rounds"]
    assert only.keys() == {"ours", "stock", "plain"}
    assert {sample["units"] for sample in only.values()} == {64}


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.filterwarnings("ignore:.*rllib-single-agent-env-v0 already in registry")
def test_scaling(training_env: None) -> None:
    from benchmarks import scaling

    rows = check(scaling.run(1, epochs=1, trial=TINY, servers=(16,), counts=(1, 2)), 1)
    (only,) = rows["training, N=16, environment runners: 2 / none"]["rounds"]
    assert {name: sample["units"] for name, sample in only.items()} == dict.fromkeys("012", 64)
    (only,) = rows["trainings side by side: 2"]["rounds"]
    assert {name: sample["units"] for name, sample in only.items()} == {"1": 64, "2": 128}
    assert rows["peak memory of one training process"]["value"] > 100


@pytest.mark.slow
@pytest.mark.ray
def test_agreement(training_env: None) -> None:
    """Of a sweep and a user's PPOConfig to the last bit; RLlib's runner draws other actions."""
    found = agreement.run(1, iterations=4, steps=512)
    assert found["same weights"] == [("sweep", "PPOConfig")]
    returns = found["returns"]
    assert returns["sweep"] == returns["PPOConfig"] != returns["RLlib's path"]
    assert all(math.isfinite(mean) for way in returns.values() for mean in np.ravel(way))


def test_a_mean_outside_the_interval_of_another_way_is_named() -> None:
    near = [[value] * agreement.PARTS for value in (1.0, 1.1, 1.2, 1.3, 1.4)]  # 1.2, +- 0.196
    far = [[1.0, 1.2, 1.39, 1.41]] * 5
    found = {(one, k) for one, other, k in agreement.outside({"near": near, "far": far}) if other == "near"}
    assert found == {("far", 0), ("far", 3)}


@pytest.mark.slow
@pytest.mark.ray
def test_live() -> None:
    """With a Ray of its own: it is long, and stands alone."""
    pytest.importorskip("ray.serve", exc_type=ImportError)
    from benchmarks import live, llm_replicas

    rows = check(live.run(1, workflows=3, turns=2, tasks=8, time_scale=0.01), 1)
    assert rows["8 empty tasks on 4 actors, ours / bare"]["bar"] == 0.5
    ours = f"2 turns of coding-agents through Ray Serve, PolicyRouter ({llm_replicas.RULE})"
    assert rows[f"{ours} / prefix cache affinity: p95"]["aim"] == 0.9


@pytest.mark.slow
def test_turns_come_at_the_load_of_the_replicas() -> None:
    pytest.importorskip("ray.serve", exc_type=ImportError)
    from benchmarks import llm_replicas

    flows = llm_replicas.turns_of(0, 12)
    work = sum(flow.demands["compute"].sum() for flow in flows)
    at_once = llm_replicas.REPLICAS * llm_replicas.MAX_CONCURRENT
    assert work / flows[-1].arrival_s / at_once == pytest.approx(llm_replicas.LOAD)
    assert max(flow.demands["delay"].max() for flow in flows) <= llm_replicas.MAX_DELAY_S


@pytest.mark.slow
def test_large_folders(tmp_path: Path) -> None:
    parts = ("status", "compare", "commands")
    rows = {m.name: m for m in scale.run(tmp_path, rows=1, variants=3, trials=100, parts=parts)}
    assert {m.unit for m in rows.values()} == {"s", "GB"}
    assert rows["variants, compare"].bar == 3
    assert all(m.value > 0 for m in rows.values())


def test_a_ratio_is_the_median_over_rounds_of_ratios_within_a_round() -> None:
    def round_of(ours: float, other: float) -> measure.Round:
        return {name: {"units": 6.0, "wall_s": 1.0, "cpu_s": s} for name, s in (("ours", ours), ("other", other))}

    rounds = [round_of(1, 2), round_of(10, 30), round_of(1, 9)]
    assert measure.ratio(rounds, "ours", "other") == 3
    assert measure.ratio(rounds, "ours", "other", "wall_s") == 1
    assert measure.rate(rounds, "ours") == 6


def test_verdict() -> None:
    for value, at_most, verdict in ((1, False, "missed"), (2, False, "bar"), (4, False, "aim"), (4, True, "missed")):
        bar, aim = (3.0, 2.0) if at_most else (2.0, 4.0)
        assert Measure("m", "", value, bar=bar, aim=aim, at_most=at_most).verdict == verdict


# ---------------------------------------------------------------------- the plain loop


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.filterwarnings("ignore:.*rllib-single-agent-env-v0 already in registry")
def test_the_plain_update_is_ours(training_env: None) -> None:
    """One minibatch holding the whole batch: its order is of no importance, and both weights must agree after it."""
    from ray.rllib.core import DEFAULT_MODULE_ID

    from rllib_scale.rl.methods import build_algorithm_config

    ppo = {"steps_per_epoch": 64, "minibatch_size": 64, "passes": 1, "num_envs": 2}
    trial = TrialConfig.of(algorithm=ppo, srr=SRRConfig(ramp_start_epoch=0, ramp_epochs=1))
    loop = PlainPPO(trial)
    algorithm = build_algorithm_config(trial).build_algo()
    learner = algorithm.learner_group._learner
    module = learner.module[DEFAULT_MODULE_ID].unwrapped()
    loop.agent.load_state_dict(module.state_dict())
    rows: dict[str, Any] = {}

    def keep(*, batch: dict[str, Any], **kwargs: Any) -> Any:
        rows.update(batch)
        return compute(batch=batch, **kwargs)

    compute, learner.compute_loss_for_module = learner.compute_loss_for_module, keep
    algorithm.train()
    columns = ("actions", "action_logp", "advantages", "value_targets")
    loop.update(rows["obs"], Rows(*(rows[column] for column in columns)))
    for name, ours in module.state_dict().items():
        torch.testing.assert_close(loop.agent.state_dict()[name], ours, rtol=0, atol=1e-6)
    algorithm.stop()


@pytest.mark.slow
def test_rates(training_env: None) -> None:
    rows = check(rates.run(1, servers=(4, 8), episodes=1), 1)
    assert {"start of a training", "sac, N=8", "cma-es, N=4", "evaluation, policy, N=8"} <= rows.keys()
    assert all(row["value"] > 0 for row in rows.values())


# ---------------------------------------------------------------------- real engines


@pytest.mark.slow
def test_real_engines_behind_the_router_do_about_what_was_predicted(tmp_path: Path) -> None:
    """One engine, some minutes and 3 GB; skipped where the engine cannot be had, or the machine is too busy to fit."""
    pytest.importorskip("aiohttp")
    from benchmarks import real_fleet
    from benchmarks.real_engines import UnavailableError

    try:
        found = {m.name: m for m in real_fleet.run(small=True, folder=tmp_path)}
    except (UnavailableError, real_fleet.RefusedError) as error:
        pytest.skip(str(error))
    frozen = json.loads((tmp_path / "frozen.json").read_text(encoding="utf-8"))
    runs = pd.read_csv(tmp_path / "runs.csv")
    assert len(runs) == len(frozen["predictions"]) == 4
    assert (runs["calls"] > 10).all()
    assert found["mean call: mean of |ln| over runs"].value < 100
    assert found["hit rate: mean difference"].value < 0.3
    assert found["the whole"].value < 600
    commands = [place.read_bytes() for place in Path("/proc").glob("[0-9]*/cmdline") if place.exists()]
    assert not [words for words in commands if str(tmp_path).encode() in words], "an engine still runs"


def test_the_tables_of_the_page_of_real_engines_are_of_its_runs() -> None:
    from benchmarks.real_page import STUDY, with_tables

    page = (STUDY / "README.md").read_text(encoding="utf-8")
    assert with_tables(page, pd.read_csv(STUDY / "runs.csv")) == page


def compared(real: dict[str, float], model: dict[str, float], load: float = 1.0) -> pd.DataFrame:
    """Runs of policies whose mean calls and outputs are these."""
    rows = [
        {"load": load, "policy": name, "seed": 1, "call_s": real[name], "output_per_s": 1 / real[name]}
        | {"call_s_model": model[name], "output_per_s_model": 1 / model[name]}
        for name in real
    ]
    return pd.DataFrame(rows)


def test_orders_gains_and_cliffs_of_real_runs_are_held_to_those_predicted() -> None:
    from benchmarks import real_compared

    real = {"session-affinity": 4.0, "session-affinity:gate=1": 2.0, "least-outstanding": 4.1}
    model = {"session-affinity": 4.0, "session-affinity:gate=1": 1.0, "least-outstanding": 0.9}
    both = compared(real, model)
    assert sorted(real_compared.pairs(both)) == [False, True], "two of the three differ by less than a tenth"
    (gain,) = real_compared.gains_of_gates(both).to_dict("records")
    assert (gain["real"], gain["model"]) == pytest.approx((math.log(2), math.log(4)))
    ways = ([1.0, 1.2, 5.0, 8.0], [1.0, 3.0, 5.0, 8.0])
    grid = [
        compared({"a": one, "a:gate=1": 1.0}, {"a": other, "a:gate=1": 1.0}, load)
        for load, one, other in zip((0.8, 1.0, 1.4, 2.0), *ways, strict=True)
    ]
    assert [real_compared.cliff(pd.concat(grid), name) for name in ("call_s", "call_s_model")] == [1, 0]


def test_pairs_of_runs_with_the_same_sessions_are_compared_with_the_first_policy() -> None:
    from benchmarks import real_compared

    runs = pd.concat(
        compared({"b": own * seed, "a": float(seed)}, {"b": own * seed, "a": 1.1 * seed}).assign(seed=seed)
        for seed, own in ((1, 1.2), (2, 1.25), (3, 1.3))
    )
    runs["call_p99_s"] = runs["call_p99_s_model"] = 1.0
    call, p99, output = real_compared.paired(runs, "a")
    assert call.value == pytest.approx(100 * np.mean(np.log([1.2, 1.25, 1.3])))
    assert call.name == "b at 1, mean call: 100 ln, ± 9.9 (predicted +12.7)"
    assert (p99.value, output.value) == pytest.approx((0.0, -call.value))
