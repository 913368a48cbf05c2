"""Engine and reference side by side: the same answers to both, everything either shows compared after each."""

from __future__ import annotations

import numpy as np
import pytest

from reference.mode_cases import ModeActions, ModeDispatch, random_mode_config, random_mode_workload
from reference.simulator import OUTCOMES, ReferenceSimulator
from rllib_scale.config import EnvConfig
from rllib_scale.simulator.changes import change_events
from rllib_scale.simulator.engine import Engine
from rllib_scale.workloads.generators import estimate_factors, generate, straggler_factors
from rllib_scale.workloads.model import Workload

EXACT = {"rtol": 1e-9, "atol": 1e-9}  # float64, sums in another order
FLOAT32 = {"rtol": 1e-6, "atol": 1e-6}
COLUMNS = ("workflow", "task", "server", "tier", "arrival_s", "ready_s", "start_s", "finish_s")
ATTEMPT_COLUMNS = ("outcome", "transfer_s", "work_gflop")


def case_config(case: int) -> EnvConfig:
    """The random problem of a case; every third one on a grid, so that events coincide."""
    return random_mode_config(np.random.default_rng([case, 7]), grid=case % 3 == 0)


def case_workload(case: int, config: EnvConfig, rng: np.random.Generator) -> Workload | None:
    """A given workload for every second case, for the others None: a drawn one."""
    if case % 2 == 0:
        return None
    return Workload.from_dict(random_mode_workload(rng, config, grid=case % 3 == 0), "case")


def begin(config: EnvConfig, seed: int, episode: int, workload: Workload | None) -> tuple[Engine, ReferenceSimulator]:
    """Both at the start of the same episode."""
    engine = Engine(config)
    engine.reset([seed], [episode], workload=workload)
    return engine, reference(config, seed, episode, workload)


def reference(config: EnvConfig, seed: int, episode: int, workload: Workload | None) -> ReferenceSimulator:
    """The reference at the start of an episode of a drawn or a given workload."""
    played = generate(config, seed, episode) if workload is None else workload
    return ReferenceSimulator(
        config,
        played,
        open_ended=workload is None and config.episode.arrivals_until_s is None,
        changes=change_events(config.cluster, seed, episode, config.episode.horizon_s),
        factors=estimate_factors(config, seed, episode, played),
        slowdowns=straggler_factors(config, seed, episode, played),
    )


def play_both(engine: Engine, sim: ReferenceSimulator, rng: np.random.Generator, most: int) -> int:
    """At most so many answers to both, everything compared after each; returns how many it were."""
    actions = ModeActions(rng)
    assert_same_state(engine, sim)
    for k in range(most):
        if sim.done:
            break
        if rng.random() < 0.02:
            assert_refused(engine, sim, actions.impossible(sim))
        action = actions(sim)
        sim.step(action)
        engine.step([action])
        assert OUTCOMES[engine.outcome[0]] == sim.outcome, k
        assert_same_state(engine, sim)
    else:
        k = most
    assert_same_totals(engine, sim)
    return k


def dispatch_both(engine: Engine, sim: ReferenceSimulator, rng: np.random.Generator, most: int) -> None:
    """The same dispatches to both, everything but the candidates compared after each."""
    answers = ModeDispatch(rng)
    for _ in range(most):
        if sim.done:
            break
        sim.dispatch(answers(sim))
        engine.dispatch(np.array([(0, *answer) for answer in answers.given], dtype=np.int64).reshape(-1, 4))
        assert_same_state(engine, sim, candidates=False)
    assert_same_totals(engine, sim)


def assert_refused(engine: Engine, sim: ReferenceSimulator, action: int | None) -> None:
    if action is None:
        return
    with pytest.raises(ValueError, match=str(action)):
        sim.step(action)
    with pytest.raises(ValueError, match=str(action)):
        engine.step([action])


def assert_same_state(engine: Engine, sim: ReferenceSimulator, candidates: bool = True) -> None:
    """What is seen after an answer; `candidates`: also who is offered and where it fits."""
    assert bool(engine.done[0]) == sim.done
    assert_close(engine.clock[0], sim.clock, "clock", 1e-12)
    assert_close(engine.reward[0], sim.reward, "reward")
    assert_close(engine.elapsed[0], sim.elapsed, "elapsed")
    if candidates:
        assert list(map(tuple, engine.offers(0))) == sim.offers()
        assert engine.fit[0].tolist() == sim.fit().tolist()
    np.testing.assert_allclose(engine.available(0), sim.available(), err_msg="available", **EXACT)
    np.testing.assert_allclose(engine.observation[0], sim.observation(), err_msg="observation", **FLOAT32)


def assert_close(value: float, expected: float, name: str, tolerance: float = 1e-9) -> None:
    assert abs(value - expected) <= tolerance * max(1.0, abs(expected)), (name, value, expected)


def assert_same_totals(engine: Engine, sim: ReferenceSimulator) -> None:
    """Metrics and schedule."""
    metrics, expected = engine.metrics(0), sim.metrics()
    assert metrics.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(metrics[name], value, err_msg=name, **EXACT)
    schedule, rows = engine.schedule(0), sim.schedule()
    assert len(schedule) == len(rows)
    for k, name in enumerate((*COLUMNS, *ATTEMPT_COLUMNS)):
        column, wanted = schedule[name].tolist(), [row[k] for row in rows]
        if name in ("tier", "outcome", "workflow", "task", "server"):
            assert column == wanted, name
        else:
            np.testing.assert_allclose(column, wanted, err_msg=name, **EXACT)
