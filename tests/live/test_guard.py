"""A guard takes over from a policy that falls behind it, and from no other: in virtual time and on a local Ray."""

from __future__ import annotations

import logging
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from click.testing import CliRunner

from live.problems import OnlySlowest, problem, task, work
from live.virtual import VirtualBackend
from local_ray import LOCAL_RAY
from rllib_scale import live
from rllib_scale.cli import main
from rllib_scale.config import EnvConfig, TierConfig, scenario
from rllib_scale.errors import UserError
from rllib_scale.evaluation.workflows import completions_s
from rllib_scale.live.guard import Guard, _Shadow, play_guarded
from rllib_scale.observation.policy import Policy
from rllib_scale.observation.view import View
from rllib_scale.policies.make import make_policy
from rllib_scale.schedulers.adaptive_price import AdaptivePrice
from rllib_scale.schedulers.context import LOAD_UNIT, PRIOR_LOAD
from rllib_scale.simulator.event_engine import Attempt
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload

pytestmark = LOCAL_RAY
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the servers cannot import it

TWO = (
    TierConfig(name="slow", count=1, compute_gflops=1.0, memory_gb=80.0),
    TierConfig(name="fast", count=2, compute_gflops=8.0, memory_gb=80.0),
)


def stays(backend: VirtualBackend, workload: Workload) -> np.ndarray:
    """(W,) from arrival to the end of each workflow [s]."""
    return completions_s(workload, backend.engine.schedule()) - workload.arrival_s


def two_at_load(load: float, until: float) -> tuple[EnvConfig, Workload]:
    """A slow and two fast servers, and workflows for them."""
    env = problem(TWO)
    workload = env.workload.model_copy(update={"offered_load": load})
    episode = env.episode.model_copy(update={"arrivals_until_s": until})
    env = env.model_copy(update={"workload": workload, "episode": episode})
    return env, generate(env, 1, 0)


def guarded(policy: Policy, env: EnvConfig, workload: Workload, **options: Any) -> tuple[VirtualBackend, list[str]]:
    """What comes of it with a guard, and what that says."""
    said: list[str] = []
    times = options.pop("times", lambda attempt: 1.0)
    backend: Any = VirtualBackend(policy.problem(env), workload, times)
    policy.reset([(0, 0)])
    play_guarded(policy, backend, env, Guard(**options), said.append)
    return backend, said


def test_a_policy_that_uses_only_the_slowest_server_is_replaced_on_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command: until it is replaced all tasks are on the slow server, later also on the fast one."""
    (tmp_path / "mine.py").write_text("from live.problems import OnlySlowest\n")
    monkeypatch.syspath_prepend(tmp_path)
    work(*((2.0 * k, [task(8.0)], []) for k in range(60))).save(tmp_path / "w.json")
    tiers = ", ".join(f"{{name: {t.name}, count: 1, compute_gflops: {t.compute_gflops}, memory_gb: 80}}" for t in TWO)
    options = ["--set", f"cluster={{tiers: [{tiers}]}}", "--time-scale", "0.02", "--results", str(tmp_path / "results")]
    options += ["--scheduler", "mine:OnlySlowest", "--guard", "fastest-idle", "--schedule", str(tmp_path / "s.csv")]
    done = CliRunner().invoke(main, ["execute", str(tmp_path / "w.json"), *options])
    assert done.exit_code == 0, done.output
    (since,) = re.findall(r"fastest-idle takes over from mine:OnlySlowest after ([0-9.]+) s: 50 workflows", done.output)
    rows = np.genfromtxt(tmp_path / "s.csv", delimiter=",", names=True, dtype=None, encoding="utf-8")
    assert rows["outcome"].tolist() == ["finished"] * 60
    assert set(rows[rows["start_s"] < float(since) - 0.1]["tier"]) == {"slow"}
    assert "fast" in rows[rows["start_s"] > float(since)]["tier"]


@pytest.mark.slow
def test_a_bad_policy_hands_over_and_what_comes_later_is_as_with_the_guard_alone() -> None:
    env, workload = two_at_load(0.4, 3000.0)
    rule = make_policy("fastest-idle", env)
    alone = VirtualBackend(rule.problem(env), workload)
    rule.reset([(0, 0)])
    alone.engine.play(rule, alone.more)
    backend, said = guarded(OnlySlowest(), env, workload)
    assert len(said) == 1
    bad = VirtualBackend(env, workload)
    bad.engine.play(OnlySlowest(), bad.more)
    with_guard, with_rule, with_bad = (stays(each, workload) for each in (backend, alone, bad))
    half = len(with_rule) // 2
    assert with_guard[half:].tolist() == with_rule[half:].tolist()
    assert with_guard.mean() < 0.2 * with_bad.mean()


class SaysTheLoad(AdaptivePrice):
    """Writes down what it believes the load is."""

    def terms(self, view: View) -> tuple[np.ndarray, np.ndarray]:
        found = super().terms(view)
        self.believed = [*getattr(self, "believed", []), float(PRIOR_LOAD + LOAD_UNIT * self.learned.inputs[0, 3])]
        return found


@pytest.mark.slow
def test_a_guard_that_takes_over_knows_what_its_shadow_has_learned() -> None:
    """Nothing that is under way is counted twice, and nothing is forgotten: the load does not jump."""
    env, workload = two_at_load(0.6, 1000.0)
    rule = SaysTheLoad()
    _, said = guarded(OnlySlowest(), env, workload, scheduler=rule)
    assert len(said) == 1
    assert len(rule.believed) > 200
    assert max(np.abs(np.diff(rule.believed[20:]))) < 0.3


@pytest.mark.slow
@pytest.mark.parametrize("load", ["0.5", "0.9"])
@pytest.mark.parametrize("name", ["zoo:context-price", "non-blocking", "fastest-idle"])
def test_a_good_policy_is_never_replaced(name: str, load: str) -> None:
    env = scenario(f"steady-{load}").at_scale(16)
    env = env.model_copy(update={"episode": env.episode.model_copy(update={"arrivals_until_s": 2000.0})})
    assert guarded(make_policy(name, env), env, generate(env, 7, 0))[1] == []


@pytest.mark.slow
def test_the_shadow_follows_times_that_no_estimate_says() -> None:
    """The rule is not behind itself, though tasks take 0.2 to 5 times their estimate; a bad policy still is."""

    def times(attempt: Attempt) -> float:
        return float(0.2 * 25 ** np.random.default_rng((attempt.workflow, attempt.task)).random())

    env, workload = two_at_load(0.4, 3000.0)
    assert guarded(make_policy("fastest-idle", env), env, workload, times=times)[1] == []
    assert len(guarded(OnlySlowest(), env, workload, times=times)[1]) == 1


@pytest.mark.slow
def test_nothing_is_kept_of_what_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[_Shadow] = []
    told = _Shadow.told
    monkeypatch.setattr(_Shadow, "told", lambda self, *about: (kept.append(self), told(self, *about)))
    env, workload = two_at_load(0.4, 3000.0)
    guarded(make_policy("fastest-idle", env), env, workload, window=20)
    shadow = kept[-1]
    assert workload.num_workflows > 300
    durations, spent = shadow._durations, shadow.comparison._spent
    assert max(len(durations._took), len(durations._recent), len(spent)) <= 40
    assert len(shadow._engine.schedule()) < 150, "of what runs, and rows that are used again"


@pytest.mark.slow
def test_what_is_lost_and_what_is_given_up_is_lost_to_the_shadow_too() -> None:
    """Servers that leave and join, a workflow that is dropped: the rule is not behind itself."""
    env, workload = two_at_load(0.3, 1500.0)
    rule = make_policy("fastest-idle", env)

    class Troubled(VirtualBackend):
        def more(self) -> bool:
            is_more, engine = super().more(), self.engine
            if is_more and engine.next_number % 20 == 10 and engine.is_there(2):
                engine.leave(2)
                self.tell("leave", 2, self.now)
            if is_more and engine.next_number % 20 == 15:
                engine.join(2)
                self.tell("join", 2, self.now)
                for flow in [flow for flow in self.flows.values() if flow.number % 20 == 14]:
                    if engine.is_under_way(flow.number):
                        for attempt in engine.give_up(flow.number):
                            engine.stopped(attempt)
                        del self.flows[flow.number]
                        self.tell("drop", flow, self.now)
            return is_more

    backend: Any = Troubled(rule.problem(env), workload)
    rule.reset([(0, 0)])
    said: list[str] = []
    play_guarded(rule, backend, env, Guard(margin=0.02), said.append)
    assert said == []


def double(number: float) -> float:
    time.sleep(0.01 * number)
    return 2 * number


@pytest.mark.slow
def test_a_cluster_of_functions_has_a_guard_too(caplog: pytest.LogCaptureFixture) -> None:
    """Functions of 10 ms that say they need 8 GFLOP: on the slowest server they queue up."""
    with (
        caplog.at_level(logging.WARNING, "rllib_scale.live.guard"),
        live.Cluster(OnlySlowest(), tiers=TWO, guard=live.Guard("fastest-idle", window=20)) as cluster,
    ):
        make = cluster.task(double, compute_gflop=8)
        assert [cluster.gather(*(make(k) for k in range(3))) for _ in range(60)] == [[0, 2, 4]] * 60
    (line,) = caplog.messages
    assert line.startswith("fastest-idle takes over from only-slowest after")


@pytest.mark.slow
def test_what_cannot_guard_is_refused() -> None:
    router_config = pytest.importorskip("rllib_scale.live.serve", exc_type=ImportError).router_config
    for guard, why in (
        ("heft", "heft: plans ahead"),
        ("fastest-idel", "did you mean 'fastest-idle'"),
        (Guard(margin=-1.0), "guard: margin -1, window 50; valid: from 0, from 10"),
        (Guard(window=3), "window 3"),
        (Guard(margin=float("nan")), "margin nan"),
    ):
        with pytest.raises(UserError, match=why):
            live.Cluster(tiers=TWO, guard=guard)
    of_router: list[tuple[Any, str]] = [
        ("heft", "heft: plans ahead"),
        ("fastest-idel", "did you mean 'fastest-idle'"),
        ({"scheduler": "fastest-idle", "window": 3}, "window"),
    ]
    for named, why in of_router:
        with pytest.raises(UserError, match=why):
            router_config("sticky", guard=named)
