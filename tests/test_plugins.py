"""User code by import path and entry point: played, refused, hashed, kept out of what strangers wrote."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from networks.observations import random_network
from rllib_scale import plugins
from rllib_scale.config import EnvConfig, ProblemsConfig, TrialConfig, scenario
from rllib_scale.config.plan import SweepConfig
from rllib_scale.config.schedulers import parse_scheduler
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import evaluate
from rllib_scale.evaluation.replay import Replay
from rllib_scale.loading import env_from, resolve, sweep_from
from rllib_scale.networks.build import build_network
from rllib_scale.observation.answers import OUTCOMES
from rllib_scale.policies.policy import initial_network, load_policy, save_policy
from rllib_scale.results.tables import open_folder
from rllib_scale.rl.vector_env import TrainingVectorEnv
from rllib_scale.schedulers.dispatcher import Dispatcher
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.sweeps.planning import make_plan
from rllib_scale.workloads.generators import generate
from sweep_runs import episodes, refused, succeed

RULES = '''
import numpy as np
from rllib_scale.config.schedulers import FinishParameters, NoParameters
from rllib_scale.schedulers.base import Rule
from rllib_scale.observation.starting import Starting
from rllib_scale.schedulers.dispatcher import Dispatcher

from .costs import speed


class Fastest(Rule):
    """fastest-idle, written once more."""

    def rate(self, v):
        return np.where(v.feasible, speed(v), -np.inf)


class Patient(Rule):
    """earliest-finish at waiting 1."""

    takes = FinishParameters

    def rate(self, v):
        return np.where(v.fits, -(self.parameters.waiting * v.remaining + v.execution_s), -np.inf)


class First(Dispatcher):
    """The first task that can start, on the first server where it can."""

    def dispatch(self, now):
        starting = Starting(now)
        for task, server in np.argwhere(starting.can_start)[:1]:
            starting.start(task, server)
        return starting.answers()


class Given(NoParameters):
    answer: str = ""


class Rates(Rule):
    takes = Given

    def rate(self, v):
        return {"none": None, "list": [1.0, 2.0], "text": v.capacity.astype(str)}[self.parameters.answer]


class Dispatches(Dispatcher):
    takes = Given

    def dispatch(self, now):
        answers = {"none": None, "list": [1, 2, 3], "ragged": [[0], [0, 0]], "shape": np.zeros((2, 4), dtype=int)}
        return (answers | {"task": [[0, 999, 0]], "server": [[0, 0, 999]]})[self.parameters.answer]


class Abstract(Rule):
    pass


class Odd(Rule):
    def rate(self, observation, fit):
        return fit


class Undefined(Rule):
    def rate(self, v):
        return np.where(v.feasible, np.nan, -np.inf)


class Flat(Rule):
    def rate(self, v):
        return v.capacity.sum()


class Closed(Rule):
    def __init__(self):
        pass

    def rate(self, v):
        return v.capacity


NUMBER = 3
'''
COSTS = "def speed(v):\n    return v.capacity\n"
THINGS = '''
from rllib_scale.config import ClusterConfig, TierConfig, scenario
from rllib_scale.workloads.model import Workload

TIER = TierConfig(name="only", count=6, compute_gflops=20, memory_gb=128, idle_power_w=1, busy_power_w=2)
RACK = ClusterConfig(tiers=(TIER,))
QUIET = scenario("steady-0.5")


def quiet():
    return QUIET


def broken():
    return 1 / 0


def pairs(env, rng):
    """Ten workflows of two tasks, of which those after the end of arrivals are left out."""
    task = {"compute_gflop": 4.0, "memory_gb": float(rng.integers(1, 8)), "output_gb": 0.0}
    arrivals = env.episode.horizon_s * rng.random(10)
    workflows = [{"arrival_s": moment, "tasks": [task, task], "edges": [[0, 1]]} for moment in arrivals]
    return Workload.from_dict({"format": "rllib-scale-workload", "version": 1, "workflows": workflows}, "pairs")


def heavy(env, rng):
    drawn = pairs(env, rng)
    drawn.memory_gb[0] = 1000.0
    return drawn


def nothing(env, rng):
    return None
'''
NETS = '''
import numpy as np
from rllib_scale.networks.pointer import SetPointer


class Mean(SetPointer):
    """The task, and the mean of the servers."""

    def encode(self, task, servers, empty):
        real = (empty == 0).to(servers.dtype)
        return task + (real[:, None] @ servers)[:, 0] / real.sum(1, keepdim=True).clamp_min(1), servers


class Narrow(SetPointer):
    def encode(self, task, servers, empty):
        return task, servers[:, :2]


class Unfinished(SetPointer):
    pass


def hurry(step):
    return -step.elapsed_s


def told(step):
    return step.observation[:, 0] + 10.0 * step.action + 1000.0 * step.outcome


def short(step):
    return step.reward[:1]


def undefined(step):
    return step.reward * np.nan
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a user's package."""
    folder = tmp_path / "own"
    (folder / "strange").mkdir(parents=True)
    modules = {"__init__": "", "rules": RULES, "costs": COSTS, "things": THINGS, "nets": NETS}
    for name, text in (modules | {"broken": "x = 1 / 0\n"}).items():
        (folder / "strange" / f"{name}.py").write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(plugins, "_shipped", {})
    yield folder
    forget()


def forget(name: str = "strange") -> None:
    """As in a process that has not imported it."""
    for loaded in [loaded for loaded in sys.modules if loaded.startswith(name)]:
        del sys.modules[loaded]


def change(own: Path, module: str) -> None:
    """Another source of a module that is imported anew."""
    with (own / "strange" / f"{module}.py").open("a") as file:
        file.write("# another source\n")
    forget()


def rows(name: str) -> list[dict[str, object]]:
    env = EnvConfig().at_scale(8)
    played = evaluate(make_scheduler(name, env.observation), env, seed=3, episodes=2)
    return [{key: value for key, value in row.items() if value == value} for row in played]


def test_a_rule_of_ones_own_plays_as_the_same_one_of_ours(own: Path) -> None:
    assert rows("strange.rules:Fastest") == rows("fastest-idle")
    assert rows("strange.rules:Patient") == rows("earliest-finish")
    assert rows("strange.rules:Patient:waiting=0") != rows("earliest-finish")
    assert rows("strange.rules:First") != rows("fastest-idle")
    assert isinstance(make_scheduler("strange.rules:First", EnvConfig().observation), Dispatcher)
    assert resolve(parse_scheduler("strange.rules:Patient:waiting=1.0")).label == "strange.rules:Patient"
    assert resolve(parse_scheduler("strange.rules:Patient:waiting=2.0")).label == "strange.rules:Patient:waiting=2"
    for name, told in (("Fastest", "waiting tasks"), ("First", "clairvoyant")):
        succeed("evaluate", f"strange.rules:{name}", "--scales", 8, "--episodes", 1, "--output", "rows.csv")
        table = pd.read_csv("rows.csv")
        assert (table["method"][0], table["observability"][0]) == (f"strange.rules:{name}", told)


REFUSED = """
evaluate strnge.rules:Fastest | no module 'strnge'
evaluate strange.rules:Fastes | 'Fastes' | did you mean 'Fastest'
evaluate strange.rules:NUMBER | is a int | Rule | Dispatcher
evaluate json:loads | is a function | subclass
evaluate strange.rules:Abstract | does not define rate
evaluate strange.rules:Odd | rate(self, observation, fit) | 1 argument
evaluate strange.rules:Closed | cannot be made
evaluate strange.rules:Undefined | Undefined | NaN
evaluate strange.rules:Flat | scheduler Flat: rate returned | expected an array of numbers of shape (1, 8)
evaluate strange.rules:Rates:answer=none | scheduler Rates: rate returned None; expected | (1, 8)
evaluate strange.rules:Rates:answer=list | scheduler Rates: rate returned [1.0, 2.0]; expected | (1, 8)
evaluate strange.rules:Rates:answer=text | scheduler Rates: rate returned | array of shape (1, 8); expected | numbers
evaluate strange.rules:Dispatches:answer=none | scheduler Dispatches: dispatch returned None; expected | (K, 3)
evaluate strange.rules:Dispatches:answer=list | scheduler Dispatches: dispatch returned [1, 2, 3]; expected
evaluate strange.rules:Dispatches:answer=ragged | scheduler Dispatches: dispatch returned [[0], [0, 0]]; expected
evaluate strange.rules:Dispatches:answer=shape | dispatch returned int64 array of shape (2, 4); expected
evaluate strange.rules:Dispatches:answer=task | scheduler Dispatches: | task 999 cannot start on server 0; expected
evaluate strange.rules:Dispatches:answer=server | scheduler Dispatches: | cannot start on server 999; expected
evaluate strange.broken:X | strange.broken cannot be imported | ZeroDivisionError
evaluate strange.rules:Patient:waitin=1 | waitin | waiting
evaluate sticky --scenario strange.things:RACK | is a ClusterConfig; valid
evaluate sticky --scenario strange.things:quit | did you mean 'quiet'
evaluate sticky --scenario strange.things:broken | failed (ZeroDivisionError
evaluate sticky --set cluster=strange.things:RACK | unknown cluster 'strange.things:RACK'; valid: paper-16
evaluate sticky --set workload.generator=pairs | unknown generator 'pairs'; valid: package.module:Name
evaluate sticky --set workload.generator=strange.things:QUIET | is a EnvConfig; valid: a function
evaluate sticky --set workload.generator=strange.things:broken | failed (TypeError
evaluate sticky --set workload.generator=strange.things:nothing | gave a NoneType; valid
evaluate sticky --set workload.generator=strange.things:heavy | generator 'strange.things:heavy': workflow 0, task 0
import strange.things:RACK x --output w.json | valid: a rllib_scale.workloads.formats.base.Format
"""


def test_what_is_none_is_refused_in_one_line(own: Path) -> None:
    for row in REFUSED.strip().splitlines():
        command, *parts = row.split(" | ")
        more = ("--scales", 8, "--episodes", 1) if command.startswith("evaluate") else ()
        line = refused(*command.split(), *more)
        assert all(part in line for part in parts), line
        assert len(line) <= 300


def test_an_entry_point_is_a_name_like_any_other(own: Path) -> None:
    (folder := own / "strange_entry-1.dist-info").mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: strange-entry\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("[rllib_scale.schedulers]\nstranger = strange.rules:Patient\n")
    sys.path.append(str(own))
    assert rows("stranger:waiting=1") == rows("earliest-finish")
    assert resolve(parse_scheduler("stranger:waiting=1")).label == "stranger"
    assert "stranger" in succeed("schedulers")
    assert "did you mean 'stranger'" in refused("evaluate", "strangr")


def sweep_of(rule: str, **more: object) -> SweepConfig:
    data = {"name": "own", "methods": [], "evaluation": {"scales": [4], "episodes": 1, "heuristics": [rule]}} | more
    return sweep_from(data, "test")


def trained(method: str = "crossattn", **sections: object) -> TrialConfig:
    """The training of a sweep with these sections."""
    (trial,) = make_plan(sweep_from({"name": "own", "methods": [method]} | sections, "test"), "test").trials
    return trial.config


def test_its_source_is_part_of_the_hashes_and_of_the_manifest(own: Path) -> None:
    def of_rule() -> tuple[str, str, str]:
        forget()
        sweep = sweep_of("strange.rules:Fastest")
        (unit,) = make_plan(sweep, "test").units
        assert (unit.spec.label, "#source=" in unit.name) == ("strange.rules:Fastest", True)
        trial = trained(algorithm={"name": "imitation", "expert": "strange.rules:Fastest"})
        return unit.key, trial.trial_id, sweep.evaluation.heuristics[0]

    def of_generator() -> tuple[str, str, str]:
        env = {"workload": {"generator": "strange.things:pairs"}}
        trial = trained(env=env)
        (unit,) = make_plan(sweep_of("sticky", env=env), "test").units
        assert unit.code == [trial.env.workload.generator]
        return unit.key, trial.trial_id, str(trial.env.workload.generator)

    for named, module in ((of_rule, "rules"), (of_generator, "things")):
        before = named()
        assert named() == before
        change(own, module)
        assert all(one != other for one, other in zip(before, named(), strict=True))
        if named is of_rule:
            with pytest.raises(UserError, match="is not what the config was read with"):
                make_scheduler(before[2], EnvConfig().observation)


def test_its_digest_covers_the_own_modules_that_it_imports(own: Path) -> None:
    """`rules` imports `costs`, which imports `deep` within a function and `outside` of another package."""
    (own / "outside.py").write_text("SPEED = 1\n")
    (own / "strange" / "deep.py").write_text("import json, numpy.linalg, outside as there\n")
    with (own / "strange" / "costs.py").open("a") as file:
        file.write("\n\ndef later():\n    from . import deep\n    import rllib_scale.zoo, missing\n")

    def digest() -> str:
        forget()
        plugins._shipped.clear()
        return plugins.load("scheduler", "strange.rules:Fastest", [])[1]

    before = digest()
    assert [Path(each).name for each in plugins.sources()] == ["outside.py", "strange"]
    for module in ("strange/costs", "strange/deep", "outside", "strange/rules", "strange/__init__"):
        with (own / f"{module}.py").open("a") as file:
            file.write("# another source\n")
        before, last = digest(), before
        assert before != last, module
    (own / "strange" / "things.py").write_text("# not imported\n")
    assert digest() == before


def test_values_of_a_grid_are_pinned_too(own: Path) -> None:
    grid = {"algorithm.expert": ["strange.rules:Fastest", "sticky"]}
    sweep = sweep_of("fastest-idle", methods=["crossattn"], algorithm={"name": "imitation"}, grid=grid)
    ours, theirs = (trial.config.algorithm.expert for trial in make_plan(sweep, "test").trials)
    assert ours == str(resolve(parse_scheduler("strange.rules:Fastest")))
    assert plugins.SOURCE_SEPARATOR in ours
    assert theirs == "sticky"
    grid = {"env.workload.generator": ["strange.things:pairs", None]}
    varied = make_plan(sweep_of("sticky", methods=["crossattn"], grid=grid), "test").trials
    pinned = plugins.pinned("generator", "strange.things:pairs")
    assert [trial.config.env.workload.generator for trial in varied] == [pinned, None]


UNKNOWN = f"strange.broken:X{plugins.SOURCE_SEPARATOR}0123456789abcdef"


@pytest.mark.parametrize("name", [UNKNOWN, "strange.broken:X"])
def test_no_file_of_a_stranger_imports_anything(own: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy or a manifest that names code, pinned or not, is read; playing what it names needs trust."""
    content = sweep_of("sticky").written()
    rules = content["evaluation"] | {"heuristics": [name]}
    for change in ({"evaluation": rules}, {"env": {"workload": {"generator": name}}}):
        sweep = build_model(SweepConfig, content | change, "manifest")
        plan = make_plan(sweep, "test")
        (unit,) = plan.units
        folder = own / f"out-{len(change)}-{'env' in change}"
        open_folder(folder, "own", sweep.written(), "hash", plan.to_json())
        with monkeypatch.context() as other:
            other.setenv("XDG_STATE_HOME", str(own / "another-account"))
            with pytest.raises(UserError, match=r"names code to import, strange\.broken:X, .* --trust"):
                Replay(folder).player(unit)
    imitation = {"methods": ["crossattn"], "algorithm": {"name": "imitation"}, "grid": {"algorithm.expert": [name]}}
    make_plan(build_model(SweepConfig, content | imitation, "manifest"), "m")
    for key, change in (
        ("cluster", {"env": {"cluster": name}}),
        ("scenario", {"scenario": name}),
    ):
        with pytest.raises(UserError, match=f"unknown {key}"):
            make_plan(build_model(SweepConfig, content | change, "manifest"), "manifest")
    imitating = TrialConfig.of(algorithm={"name": "imitation", "expert": "fastest-idle"})
    save_policy(own / "policy", random_network(), imitating, epochs=1)
    path = own / "policy" / "policy.json"
    description = json.loads(path.read_text())
    description["trial"]["algorithm"]["expert"] = name
    description["trial_id"] = TrialConfig.model_validate(description["trial"]).trial_id
    path.write_text(json.dumps(description))
    load_policy(own / "policy")
    assert "strange.broken" not in sys.modules


def evaluated(*words: object, settings: Iterable[str] = ()) -> dict[str, Any]:
    """The row of fastest-idle in an episode."""
    (row,) = json.loads(succeed("evaluate", "fastest-idle", "--episodes", 1, "--json", *words, settings=settings))
    return dict(row)


def test_a_scenario_of_ones_own_is_kept_by_its_content(own: Path) -> None:
    names = ("strange.things:QUIET", "strange.things:quiet", "steady-0.5")
    rows = [evaluated("--scales", 8, "--scenario", name) for name in names]
    assert [row.pop("scenario") for row in rows] == [*names]
    assert rows[0] == rows[1] == rows[2]
    sweep = sweep_of("sticky", scenario="strange.things:quiet")
    assert sweep.problem_at(())[1] == scenario("steady-0.5")
    (unit,) = make_plan(sweep, "test").units
    assert (unit.scenario, unit.env.episode) == ("strange.things:quiet", scenario("steady-0.5").episode)
    listed = {"scales": [4], "episodes": 1, "heuristics": ["sticky"], "scenarios": ["strange.things:quiet", "paper"]}
    assert make_plan(sweep_of("sticky", evaluation=listed), "test").units[0].key == unit.key
    content = sweep.written()
    changed = json.loads(json.dumps(content).replace("550.0", "551.0"))
    forget()
    assert build_model(SweepConfig, content, "manifest") == sweep
    (other,) = make_plan(build_model(SweepConfig, changed, "manifest"), "test").units
    assert other.key != unit.key
    assert "strange.things" not in sys.modules
    with pytest.raises(UserError, match=r"custom_scenarios\.paper: is a shipped scenario"):
        sweep_of("sticky", custom_scenarios={"paper": {}})


def problem_of(generator: str) -> EnvConfig:
    return env_from({"workload": {"generator": f"strange.things:{generator}"}}, "test")


def test_a_generator_of_ones_own_draws_the_workloads(own: Path) -> None:
    env = problem_of("pairs").at_scale(4)
    first, again, other = (generate(env, 3, episode) for episode in (0, 0, 1))
    assert first.equals(again)
    assert not first.equals(other)
    assert first.num_tasks == 2 * first.num_workflows == 20
    until = env.model_copy(update={"episode": env.episode.model_copy(update={"arrivals_until_s": 6.0})})
    assert generate(until, 3, 0).arrival_s.tolist() == first.arrival_s[first.arrival_s <= 6.0].tolist()
    (row,) = evaluate(make_scheduler("fastest-idle", env.observation), env, seed=3, episodes=1)
    assert (row["workflows_arrived"], row["arrived"]) == (10, 20)


def test_a_results_folder_of_a_stranger_draws_nothing_without_trust(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = sweep_of("sticky", env={"workload": {"generator": "strange.things:pairs"}})
    content = sweep.written()
    forget()
    plan = make_plan(build_model(SweepConfig, content, "manifest"), "test")
    open_folder(own / "out", "own", content, "hash", plan.to_json())
    monkeypatch.setenv("XDG_STATE_HOME", str(own / "another-account"))
    (unit,) = plan.units
    with pytest.raises(UserError, match=r"names code to import, strange\.things:pairs, .* --trust"):
        Replay(own / "out").player(unit)
    assert Replay(own / "out", trust=True).player(unit).name == "sticky"
    assert "strange.things" not in sys.modules


def encoded(name: str, method: str = "crossattn", **network: object) -> TrialConfig:
    return trained(method, network={"encoder": name} | network)


def test_an_encoder_of_ones_own_plays_and_its_policy_needs_trust(own: Path) -> None:
    trial = encoded("strange.nets:Mean")
    assert trial.trial_id != TrialConfig.of("crossattn").trial_id
    save_policy(own / "policy", build_network(trial), trial, epochs=1)
    described = json.loads((own / "policy" / "policy.json").read_text())["trial"]
    assert described["network"]["encoder"].startswith("strange.nets:Mean#source=")
    forget()
    words = ["evaluate", "policy", "--scales", "4,8", "--episodes", 1]
    line = refused(*words)
    assert "names code to import, strange.nets:Mean; if you know where it comes from, say --trust" in line
    assert "strange.nets" not in sys.modules
    succeed(*words, "--trust")
    begins = {"algorithm": {"initial_policy": str(own / "policy")}}
    again = trained("crossattn", network={"encoder": "strange.nets:Mean"}, **begins)
    assert initial_network(again).state_dict().keys() == build_network(trial).state_dict().keys()
    with pytest.raises(UserError, match="names code to import"):
        initial_network(TrialConfig.of("crossattn", **begins))


@pytest.mark.parametrize(
    ("name", "method", "part"),
    [
        ("Narrow", "crossattn", r"failed \(RuntimeError"),
        ("Unfinished", "crossattn", r"failed \(TypeError"),
        ("hurry", "crossattn", r"is a function; valid: a subclass of rllib_scale\.networks\.pointer\.SetPointer"),
    ],
)
def test_what_is_no_encoder_or_has_no_place_is_refused_in_one_line(
    own: Path, name: str, method: str, part: str
) -> None:
    with pytest.raises((UserError, ValueError), match=part):
        build_network(encoded(f"strange.nets:{name}", method))


def training_steps(reward: str | None, problems: ProblemsConfig | None) -> list[tuple[np.ndarray, ...]]:
    """What is shown, done and earned in 40 steps; the episodes end within them."""
    name = None if reward is None else plugins.pinned("reward", f"strange.nets:{reward}")
    env = TrainingVectorEnv(2, scenario("paper").at_scale(4), 42, problems, reward=name)
    rows, _ = env.reset(seed=[1, 2])
    steps, begins = [], np.zeros(2, dtype=bool)
    for action in np.arange(40) % 4:
        before = rows[:, 0].copy()
        rows, earned, terminated, truncated, _ = env.step(np.full(2, action))
        steps.append((before, np.full(2, action), env._engine.elapsed.copy(), begins, earned))
        begins = terminated | truncated
    assert any(step[3].any() for step in steps)
    return steps


@pytest.mark.parametrize("problems", [None, ProblemsConfig(servers=(4,), offered_load=(0.8, 0.9))])
def test_a_reward_of_ones_own_is_told_what_was_done(own: Path, problems: ProblemsConfig | None) -> None:
    for _, _, elapsed, begins, earned in training_steps("hurry", problems):
        np.testing.assert_array_equal(earned, np.where(begins, 0.0, -elapsed))
    for before, action, _, begins, earned in training_steps("told", problems):
        outcome = (earned - before - 10.0 * action) / 1000.0
        assert np.isin(outcome[~begins].round(6), range(len(OUTCOMES))).all()
        assert not earned[begins].any()


def test_what_is_no_reward_is_refused_in_one_line(own: Path) -> None:
    for name, part in (("short", r"gave float64 \(1,\)"), ("undefined", "no finite numbers")):
        with pytest.raises(UserError, match=part):
            training_steps(name, None)
    reward = {"algorithm": {"reward": "strange.nets:hurry"}}
    assert trained(**reward).trial_id != trained().trial_id
    with pytest.raises(ValueError, match=r"algorithm.reward: context-price.*valid: with algorithm.name ppo"):
        TrialConfig.of("context-price", **reward)


@pytest.mark.cluster
@pytest.mark.ray
def test_a_sweep_plays_it_on_workers_that_do_not_have_it(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the path of this process alone, in a local Ray of its own; the report draws schedules of the user's folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(own)
    (tmp_path / "rules.yaml").write_text(
        "name: own\nmethods: [crossattn]\nnetwork: {encoder: 'strange.nets:Mean'}\n"
        "algorithm: {epochs: 1, reward: 'strange.nets:hurry', steps_per_epoch: 64, minibatch_size: 32, num_envs: 2}\n"
        "scenario: steady-0.7\nenv: {workload: {generator: 'strange.things:pairs'}}\n"
        "evaluation: {scales: [4], episodes: 2, heuristics: [fastest-idle, 'strange.rules:Fastest']}\n"
    )
    succeed("sweep", "rules.yaml", "--results", tmp_path / "out")
    rows = episodes(tmp_path / "out")
    table = rows.set_index(["method", "episode"])["response_mean_s"]
    assert table["strange.rules:Fastest"].tolist() == table["fastest-idle"].tolist()
    assert set(rows["workflows_arrived"]) <= set(range(10))
    assert "crossattn" in table.index
    config = json.loads((tmp_path / "out" / "manifest.json").read_text())["config"]
    assert config["env"]["workload"]["generator"].startswith("strange.things:pairs#source=")
    theirs = str(resolve(parse_scheduler("strange.rules:Fastest")))
    assert config["evaluation"]["heuristics"] == ["fastest-idle", theirs]
    assert "strange.rules:Fastest" in (tmp_path / "out" / "report" / "report.html").read_text()
