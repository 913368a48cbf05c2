"""In every mode the compiled engine plays every episode exactly as the reference simulator does."""

import collections

import numpy as np
import pytest

from reference.comparison import begin, case_config, case_workload, dispatch_both, play_both, reference
from reference.mode_cases import EVENTS, ORDERS, ModeActions
from reference.simulator import OUTCOMES
from seeds import each_of

CASES = range(180)
DISPATCHED = range(1000, 1060)
MANY = range(2000, 3000)
STEPS = 300  # answers of an episode, at most: one that stops tasks at once again need not end
MANY_STEPS = 1000  # of a configuration


@each_of(CASES, by_default=60)
def test_an_episode_is_played_as_by_the_reference(case):
    rng = np.random.default_rng([case, 1])
    config = case_config(case)
    play_both(*begin(config, case, case % 5, case_workload(case, config, rng)), rng, STEPS)


@each_of(DISPATCHED)
def test_an_episode_is_dispatched_as_by_the_reference(case):
    rng = np.random.default_rng([case, 1])
    config = case_config(case).with_mask("none")
    dispatch_both(*begin(config, case, case % 5, case_workload(case, config, rng)), rng, STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_a_million_random_answers_are_played_as_by_the_reference(part):
    for case in MANY[part::4]:
        rng = np.random.default_rng([case, 1])
        config = case_config(case)
        played = episode = 0
        while played < MANY_STEPS and episode < MANY_STEPS:
            given = case_workload(case, config, rng)
            played += play_both(*begin(config, case, episode, given), rng, MANY_STEPS - played)
            episode += 1


def test_one_engine_plays_episode_after_episode_like_a_new_one():
    for case in (2, 4, 6, 8):
        config = case_config(case)
        engine, _ = begin(config, case, 0, None)
        for episode in range(4):
            engine.reset([case], [episode])
            play_both(engine, reference(config, case, episode, None), np.random.default_rng(episode), STEPS)


def test_the_cases_cover_every_setting():
    configs = [case_config(case) for case in CASES]
    settings = collections.defaultdict(set)
    for config in configs:
        for part in ("decision", "communication", "information"):
            for name, value in getattr(config, part).model_dump().items():
                settings[name].add(value)
        settings["stragglers"].add(config.information.straggles)
        for name in ("mask", "idle_advance", "first_arrival", "horizon_is_terminal"):
            settings[name].add(getattr(config.episode, name))
        settings["max_decisions"].add(config.episode.max_decisions is None)
        settings["arrivals_until_s"].add(config.episode.arrivals_until_s is None)
        settings["reward"].add(config.reward.name)
        settings["estimates"].add(config.information.estimate_error > 0)
        settings["drawn delays"].add(config.workload.delay_s is None)
        settings["slots"].update(tier.slots for tier in config.cluster.tiers)
        settings["slowdown"].update(tier.slots > 1 and tier.slot_slowdown > 0 for tier in config.cluster.tiers)
        changes = config.cluster.changes
        settings["events"].update(change.event for change in changes.schedule)
        settings["share"].update((change.share is None, bool(change.tiers)) for change in changes.schedule)
        for name in ("failures_per_1000_h", "departures_per_h", "repair_s", "return_s", "tiers"):
            settings[name].add(changes.at_random and bool(getattr(changes, name)))
    both = {True, False}
    expected = {
        "on_busy": {"step", "reserve"},
        "order": {*ORDERS, "open"},
        "ties": {"first-ready", "first-arrival"},
        "offer": {"all", "startable"},
        "candidates": {1, 2, 3, 4, 5},
        "open_by": set(ORDERS),
        "preemption": {"none", "restart", "resume"},
        "mode": {"reward", "transfer"},
        "predecessors": {"first", "all"},
        "first": {"lowest-index", "largest-output"},
        "workflows": {"whole", "revealed"},
        "mask": {"none", "feasible"},
        "idle_advance": {"event", "clock-step"},
        "first_arrival": {"exponential", "at-zero"},
        "reward": {"paper", "tasks-in-system"},
        "slots": {1, 2, 3, 4},
        "events": set(EVENTS),
        "share": {(True, False), (False, False), (False, True)},
    }
    for name, values in settings.items():
        if name not in ("estimate_error", "straggler_share", "straggler_factor"):
            assert values == expected.get(name, both), name
    rounds = {(c.decision.on_busy, c.decision.order == "open", c.decision.preemption, c.episode.mask) for c in configs}
    assert len(rounds) == 24  # every kind of round


@pytest.mark.slow
def test_the_cases_play_every_kind_of_outcome_and_event():
    outcomes, events, attempts, forced = (collections.Counter() for _ in range(4))
    for case in CASES:
        rng = np.random.default_rng([case, 1])
        config = case_config(case)
        sim = reference(config, case, case % 5, case_workload(case, config, rng))
        actions = ModeActions(rng)
        for _ in range(STEPS):
            if not sim.done:
                sim.step(actions(sim))
                outcomes[config.decision.on_busy, sim.outcome] += 1
        events.update(sim.handled)
        attempts.update(attempt.outcome for attempt in sim.attempts)
        forced[config.decision.on_busy] += sim.forced
    never = {("step", "waits"), ("reserve", "busy")}
    possible = {(mode, outcome) for mode in ("step", "reserve") for outcome in OUTCOMES} - never
    assert outcomes.keys() == possible
    assert min(outcomes.values()) > 100, outcomes
    assert min(events.values()) > 100, events
    assert set(attempts) == {"finished", "failed", "preempted", "running"}
    assert min(attempts.values()) > 20, attempts
    assert set(forced) == {"step", "reserve"}  # the progress guarantee
    assert min(forced.values()) > 0, forced
