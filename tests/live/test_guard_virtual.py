"""A guard takes over from a policy that falls behind it, and from no other: in virtual time, without Ray."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from live.problems import TWO, OnlySlowest, problem, task, work
from live.virtual import VirtualBackend
from rllib_scale.config import EnvConfig, scenario
from rllib_scale.evaluation.workflows import completions_s
from rllib_scale.live.guard import Guard, _Shadow, play_guarded
from rllib_scale.observation.policy import Policy
from rllib_scale.observation.view import View
from rllib_scale.policies.make import make_policy
from rllib_scale.schedulers.adaptive_price import AdaptivePrice
from rllib_scale.schedulers.context import LOAD_UNIT, PRIOR_LOAD
from rllib_scale.simulator.outside_state import Attempt
from rllib_scale.workloads.generators import generate
from rllib_scale.workloads.model import Workload
from seeds import each_of


def stays(backend: VirtualBackend, workload: Workload) -> np.ndarray:
    """(W,) from arrival to the end of each workflow [s]."""
    return completions_s(workload, backend.engine.schedule()) - workload.arrival_s


def two_at_load(load: float, until: float, seed: int = 1) -> tuple[EnvConfig, Workload]:
    """A slow and two fast servers, and workflows for them."""
    env = problem(TWO)
    workload = env.workload.model_copy(update={"offered_load": load})
    episode = env.episode.model_copy(update={"arrivals_until_s": until})
    env = env.model_copy(update={"workload": workload, "episode": episode})
    return env, generate(env, seed, 0)


def guarded(policy: Policy, env: EnvConfig, workload: Workload, **options: Any) -> tuple[VirtualBackend, list[str]]:
    """What comes of it with a guard, and what that says."""
    said: list[str] = []
    times, given_up_s = options.pop("times", lambda attempt: 1.0), options.pop("given_up_s", None)
    seed = options.pop("seed", 0)
    backend: Any = VirtualBackend(policy.problem(env), workload, times, given_up_s)
    policy.reset([(seed, 0)])
    backend.line = play_guarded(policy, backend, env, Guard(**options), said.append, seed)
    return backend, said


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
    assert max(len(durations._guessed), len(durations._ran), len(durations._tries), len(shadow._events)) <= 40
    assert max(len(durations._recent), len(spent)) <= 40
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
            if is_more and engine.next_number % 20 == 15 and not engine.is_there(2):
                engine.join(2)
                self.tell("join", 2, self.now)
                for number in [number for number in self.flows if number % 20 == 14]:
                    self.give_up(number)
            return is_more

    backend: Any = Troubled(rule.problem(env), workload)
    rule.reset([(0, 0)])
    said: list[str] = []
    play_guarded(rule, backend, env, Guard(margin=0.02), said.append)
    assert said == []


SAME = (
    "fastest-idle",
    "earliest-finish",
    "least-loaded",
    "random-feasible",
    "reserve",
    "non-blocking",
    "adaptive-price",
)


@each_of(range(500), by_default=14)
def test_the_same_rule_on_both_sides_does_the_same(case: int) -> None:
    """Whatever the tasks really take, and though workflows are given up: it never takes over, at any margin."""
    rng, name = np.random.default_rng([case, 61]), SAME[case % len(SAME)]
    env, workload = two_at_load(float(rng.uniform(0.3, 1.1)), 300.0, case)
    gone = np.flatnonzero(rng.random(workload.num_workflows) < 0.2)
    given_up_s = {int(k): float(workload.arrival_s[k] + rng.exponential(20.0)) for k in gone}

    def times(attempt: Attempt) -> float:
        return float(0.2 * 25 ** np.random.default_rng((case, attempt.workflow, attempt.task)).random())

    options: dict[str, Any] = {"scheduler": name, "margin": 0.0, "window": 10, "seed": case}
    backend, said = guarded(make_policy(name, env), env, workload, times=times, given_up_s=given_up_s, **options)
    assert (said, backend.guard) == ([], "watching"), name
    assert backend.comparison.ratio == pytest.approx(1.0, rel=1e-9)


def test_a_guard_that_could_not_act_says_so_and_how_much_it_has_seen() -> None:
    env = problem(TWO)
    few = work(*((8.0 * k, [task(1.0)], []) for k in range(8)))
    backend, said = guarded(make_policy("reserve", env), env, few)
    assert backend.line == "guard fastest-idle: could not act: it compares 50 workflows, and 8 arrived"
    backend, said = guarded(make_policy("reserve", env), env, few, window=10)
    assert "could not act" in backend.line
    enough = work(*((8.0 * k, [task(1.0)], []) for k in range(20)))
    backend, said = guarded(make_policy("reserve", env), env, enough, window=10)
    assert re.fullmatch(
        r"guard fastest-idle: watched reserve over 20 workflows; the last 10 stayed [0-9.]+ times as long .* with it",
        backend.line,
    )
    assert said == []
