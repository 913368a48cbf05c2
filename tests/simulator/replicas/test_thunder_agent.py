"""ThunderAgent's gate against the independent model of its scheduler."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from fleets import fleet
from fleets import played as played_by
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from replica_cases import assert_same, random_case

from reference.replica import simulate
from reference.thunder import ThunderAgent, ThunderSettings
from rllib_scale.config import EnvConfig
from rllib_scale.config.schedulers import RuleSpec, parse_scheduler
from rllib_scale.errors import UserError
from rllib_scale.schedulers.replicas import REPLICA_RULES, FleetRule
from rllib_scale.simulator.replicas.rules import run
from rllib_scale.simulator.replicas.state import Fleet, new_fleet
from rllib_scale.workloads.random_numbers import new_generator


def agree(seed: int) -> tuple[Fleet, ThunderAgent]:
    """A random fleet agrees with the model call by call; returns both at the end."""
    case, rng = random_case(seed), np.random.default_rng([seed, 1])
    # Calls that are sent together end together: without turns that begin as soon as another ends, none ask together.
    case.scripts.tasks["release_s"][case.scripts.tasks["needs"] > 0] = -1.0
    largest = int((case.scripts.tasks["prompt"] + case.scripts.tasks["output"]).max())
    case.replicas = [each.model_copy(update={"kv_tokens": max(largest, each.kv_tokens)}) for each in case.replicas]
    settings = ThunderSettings(
        scheduler_interval=rng.uniform(0.1, 1.5),
        acting_token_weight=float(rng.choice([0.5, 1.0, 1.0])),
        use_acting_token_decay=bool(rng.random() < 0.5),
        buffer_per_program=int(rng.integers(0, 20)),
        resume_timeout=rng.uniform(0.5, 8.0),
        characters_per_token=float(rng.choice([5.0, rng.uniform(2.0, 8.0)])),
        ends_told=bool(rng.random() < 0.5),
    )
    loop = case.closed_loop
    calls, gate = simulate(
        case.replicas, case.scripts, case.starts, case.live, loop, case.until_s, lambda *_: [], settings
    )
    assert isinstance(gate, ThunderAgent)
    of_replicas = {"ends_told", "active_for_s"}
    written = ",".join(f"{name}={value}" for name, value in asdict(settings).items() if name not in of_replicas)
    spec = parse_scheduler(f"thunder-agent:{written}")
    assert isinstance(spec, RuleSpec)
    rule = REPLICA_RULES[spec.name](spec.parameters)
    assert isinstance(rule, FleetRule)
    empty, parts = (
        new_fleet(case.replicas, case.scripts.arrays, case.starts, case.live, loop, 3.0, settings.ends_told),
        list[np.ndarray](),
    )
    played = run(empty, case.until_s, rule.values, new_generator(seed, 0), parts)
    assert_same(np.concatenate(parts), calls)
    programs = played.programs[played.programs["number"] > 0]
    assert len(programs) == len(gate.programs)
    assert (programs["paused"] > 0).sum() == len(gate.paused) == played.now[0]["paused"]
    return played, gate


@settings(max_examples=2, phases=[Phase.generate])
@given(st.integers(0, 2**32 - 1))
def test_programs_pause_and_resume_as_published(seed: int) -> None:
    agree(seed)


def test_the_cases_pause_hold_and_force() -> None:
    pauses, forced, held = 0, 0, 0
    for seed in range(10):
        played, gate = agree(seed)
        pauses, forced, held = pauses + int(played.now[0]["pauses"]), forced + gate.forced, held + len(gate.held)
    assert pauses > 200
    assert forced > 50
    assert held > 5


def test_programs_that_act_for_ever_hold_others_until_they_are_forced_unless_they_decay() -> None:
    env = fleet(sessions=10, replicas=1, end_s=2500.0)
    for_ever, decaying = (
        played_by(f"thunder-agent{more}", env).metrics for more in ("", ":use_acting_token_decay=true")
    )
    assert for_ever["longest_hold_s"] == pytest.approx(1800)
    assert decaying["longest_hold_s"] < 0.5 * for_ever["longest_hold_s"]
    assert for_ever["completed"] < decaying["completed"]


def test_a_replica_that_is_too_small_for_a_call_is_refused() -> None:
    env = fleet()
    tier = {"name": "tiny", "count": 1, "replica": {"kv_tokens": 1000}}
    tiers = [*env.model_dump(mode="json")["cluster"]["tiers"], tier]
    mixed = EnvConfig.model_validate(env.model_dump(mode="json") | {"cluster": {"tiers": tiers}})
    with pytest.raises(UserError, match=r"thunder-agent: replica\.kv_tokens 1,000: .* that each call fits"):
        played_by("thunder-agent", mixed)


@pytest.mark.slow
@settings(max_examples=300, phases=[Phase.generate])
@given(st.integers(0, 2**32 - 1))
def test_many_programs_pause_and_resume_as_published(seed: int) -> None:
    agree(seed)
