"""A tiny instance worked out by hand: three servers, two workflows, a fixed list of actions.

    server  tier   GFLOPS   GB   idle W  busy W
    0       slow        1    4       10      50
    1       fast        2    8       20     100
    2       large       4   16       40     200
    3       an empty row

    workflow 0 arrives at 0.5:  A0 -> A1, A0 -> A2      workflow 1 arrives at 1.0:  B0 -> B1

    task     A0    A1    A2    B0    B1
    GFLOP     2     4     4     8     1
    GB        4     2    10    12     1
    output    1     0.5   0.25  2     0.5

Hop counts: A0 1, A1 0, A2 0, B0 1, B1 0. The bandwidth is 4 GB/s, the latency 0.25 s, the clock step 0.5 s.

The schedule of `ACTIONS` (`#` runs, the clock in half seconds from 0 to 6.5):

    t          0   .5    1  1.5    2  2.5    3  3.5    4  4.5    5  5.5    6  6.5
    server 0                            [A1 ############################### ]
    server 1        [A0 #### ]                              [B1]
    server 2                      [B0 ################ ][A2 ###]
"""

import math

import numpy as np
import pytest

from rllib_scale.config import RewardConfig
from simulator.literal import play, problem, task, tier, workflow, workload

TIERS = (
    tier("slow", memory=4),
    tier("fast", compute=2, memory=8, idle_power_w=20, busy_power_w=100),
    tier("large", compute=4, memory=16, idle_power_w=40, busy_power_w=200),
)
NETWORK = {"empty_slots": 1, "bandwidth_gb_s": 4, "latency_s": 0.25}
WORKLOAD = workload(
    workflow(0.5, task(2, 4, 1), task(4, 2, 0.5), task(4, 10, 0.25), edges=[(0, 1), (0, 2)]),
    workflow(1, task(8, 12, 2), task(1, 1, 0.5), edges=[(0, 1)]),
)

# Each line: action, clock before it, its current task and what happens, reward.
#   valid:   exp(-tau / 2)  -  0.5 * delta / 2  -  0.25 * busy power * tau / 100
#   invalid: -0.125, and the clock goes on by 0.5
DECISIONS = [
    # A0 on server 1: tau = 2/2 = 1, until 1.5; no predecessor; e = 100 * 1 J.   exp(-0.5) - 0 - 0.25.
    # Nothing is ready then: on to 1.0, where workflow 1 arrives.
    (1, 0.5, math.exp(-0.5) - 0.25),
    # B0 (12 GB) on server 0 (4 GB): does not fit. On the way to 1.5 A0 finishes: A1 and A2 become ready.
    (0, 1.0, -0.125),
    # B0 still (hop 1 before hop 0) on the empty row 3: does not fit.
    (3, 1.5, -0.125),
    # B0 on server 2: tau = 8/4 = 2, until 4.0; e = 200 * 2 J.   exp(-1) - 0 - 0.25 * 4
    (2, 2.0, math.exp(-1) - 1),
    # A1 (ready at 1.5 like A2, lower index; 2 GB) on server 2: busy, and servers 0 and 1 are idle and fit: avoidable.
    (2, 2.0, -0.125),
    # A1 on server 0: tau = 4/1 = 4, until 6.5; A0 ran on server 1: delta = 1/4 + 0.25 = 0.5; e = 50 * 4 J.
    # exp(-2) - 0.5 * 0.5 / 2 - 0.25 * 2
    (0, 2.5, math.exp(-2) - 0.125 - 0.5),
    # A2 (10 GB) on server 2: busy, and it is the only one that fits: unavoidable.
    (2, 2.5, -0.125),
    # A2 on server 1 (8 GB, idle): does not fit.
    (1, 3.0, -0.125),
    # A2 on server 0 (4 GB, busy): does not fit, busy or not. On the way to 4.0, and exactly then, B0 finishes.
    (0, 3.5, -0.125),
    # A2 (ready at 1.5, before B1 at 4.0; both hop 0) on server 2: tau = 4/4 = 1, until 5.0; delta = 0.5; e = 200 J.
    # exp(-0.5) - 0.125 - 0.25 * 2
    (2, 4.0, math.exp(-0.5) - 0.125 - 0.5),
    # B1 on server 1: tau = 1/2, until 4.5; B0 ran on server 2: delta = 2/4 + 0.25 = 0.75; e = 100 * 0.5 J.
    # exp(-0.25) - 0.5 * 0.75 / 2 - 0.25 * 0.5.   Then on to 6.5, where A1, the last task, finishes.
    (1, 4.0, math.exp(-0.25) - 0.1875 - 0.125),
]
ACTIONS = [action for action, _, _ in DECISIONS]
END = 6.5

# Tasks in the system: 3 from 0.5, 5 from 1.0; 4 from 1.5 (A0 done), 3 from 4.0 (B0), 2 from 4.5 (B1), 1 from 5.0 (A2).
TASKS_IN_SYSTEM = [
    -3 * 0.5,  # 0.5 to 1.0
    -5 * 0.5,  # 1.0 to 1.5
    -4 * 0.5,  # 1.5 to 2.0
    0,  # valid, and A1 is ready
    -4 * 0.5,  # 2.0 to 2.5
    0,  # valid, and A2 is ready
    -4 * 0.5,  # 2.5 to 3.0
    -4 * 0.5,  # 3.0 to 3.5
    -4 * 0.5,  # 3.5 to 4.0
    0,  # valid, and B1 is ready
    -(3 * 0.5 + 2 * 0.5 + 1 * 1.5),  # 4.0 to 4.5, to 5.0, to 6.5
]

# Task: c/8, m/16, successors/5, completed share of the workflow, output.
# Server: C/4, M/16, remaining seconds, watts, delay.
OBSERVATIONS = {
    0: [  # at 0.5: A0, all idle, no predecessor
        [0.25, 0.25, 0.4, 0, 1],
        [0.25, 0.25, 0, 10, 0],
        [0.5, 0.5, 0, 20, 0],
        [1, 1, 0, 40, 0],
        [0, 0, 0, 0, 0],
    ],
    4: [  # at 2.0: A1, 1 of 3 tasks done, A0 ran on server 1: elsewhere 1/4 + 0.25; server 2 runs B0 until 4
        [0.5, 0.125, 0, 1 / 3, 0.5],
        [0.25, 0.25, 0, 10, 0.5],
        [0.5, 0.5, 0, 20, 0],
        [1, 1, 2, 200, 0.5],
        [0, 0, 0, 0, 0],
    ],
    10: [  # at 4.0: B1, 1 of 2 tasks done, B0 ran on server 2: elsewhere 2/4 + 0.25; server 2 runs A2 until 5
        [0.125, 0.0625, 0, 0.5, 0.5],
        [0.25, 0.25, 2.5, 50, 0.75],
        [0.5, 0.5, 0, 20, 0.75],
        [1, 1, 1, 200, 0],
        [0, 0, 0, 0, 0],
    ],
    11: [  # at 6.5: the end, no task, all idle
        [0, 0, 0, 0, 0],
        [0.25, 0.25, 0, 10, 0],
        [0.5, 0.5, 0, 20, 0],
        [1, 1, 0, 40, 0],
        [0, 0, 0, 0, 0],
    ],
}

# workflow, task, server, tier, arrival, ready, start, finish
SCHEDULE = [
    (0, 0, 1, "fast", 0.5, 0.5, 0.5, 1.5),
    (1, 0, 2, "large", 1.0, 1.0, 2.0, 4.0),
    (0, 1, 0, "slow", 0.5, 1.5, 2.5, 6.5),
    (0, 2, 2, "large", 0.5, 1.5, 4.0, 5.0),
    (1, 1, 1, "fast", 1.0, 4.0, 4.0, 4.5),
]

# Responses: A0 1.5 - 0.5 = 1, A1 6, A2 4.5, B0 3, B1 3.5.
METRICS = {
    "arrived": 5,
    "completed": 5,
    "unfinished": 0,
    "response_mean_s": 3.6,  # 18 / 5
    "response_median_s": 3.5,
    "response_p95_s": 5.7,  # place 0.95 * 4 = 3.8 of 1, 3, 3.5, 4.5, 6:  4.5 + 0.8 * 1.5
    "response_censored_s": 3.6,
    "jct_mean_s": 4.75,  # workflow 0: 6.5 - 0.5, workflow 1: 4.5 - 1
    "workflows_arrived": 2,
    "workflows_completed": 2,
    "decisions": 11,
    "invalid_no_fit": 4,
    "invalid_busy_avoidable": 1,
    "invalid_busy_unavoidable": 1,
    "waits": 0,
    "passed": 0,
    "failed_attempts": 0,
    "preempted_attempts": 0,
    "lost_s": 0,
    "duration_s": 6.5,
    "energy_j": 1215,  # 10 * 6.5 + 40 * 4  +  20 * 6.5 + 80 * 1.5  +  40 * 6.5 + 160 * 3  =  225 + 250 + 740
    "utilisation": 8.5 / 19.5,  # (4 + 1.5 + 3) / (3 * 6.5)
    "utilisation_slow": 4 / 6.5,
    "utilisation_fast": 1.5 / 6.5,
    "utilisation_large": 3 / 6.5,
}


def start(simulator, **settings):
    return simulator(problem(*TIERS, cluster=NETWORK, **settings), WORKLOAD)


def assert_schedule(schedule, expected):
    assert [row[:4] for row in schedule] == [row[:4] for row in expected]
    np.testing.assert_array_equal([row[4:8] for row in schedule], [row[4:] for row in expected])
    # In the paper's mode an attempt ends with its task, and a transfer takes no time.
    assert [row[8:10] for row in schedule] == [("running" if math.isnan(row[7]) else "finished", 0) for row in schedule]


def rewards_of(sim, actions=ACTIONS):
    rewards = []
    for action in actions:
        play(sim, action)
        rewards.append(sim.reward)
    return rewards


def test_what_is_seen_and_rewarded_decision_by_decision(simulator):
    sim = start(simulator)
    for k, (action, clock, reward) in enumerate(DECISIONS):
        assert sim.clock == clock
        if k in OBSERVATIONS:
            np.testing.assert_allclose(sim.observation().reshape(5, 5), OBSERVATIONS[k], rtol=1e-7)
        play(sim, action)
        assert sim.reward == pytest.approx(reward, abs=1e-12)
    assert sim.done
    assert sim.clock == END
    np.testing.assert_allclose(sim.observation().reshape(5, 5), OBSERVATIONS[11], rtol=1e-7)
    assert sim.observation().dtype == np.float32
    assert_schedule(sim.schedule(), SCHEDULE)
    metrics = sim.metrics()
    assert metrics.pop("episode_return") == pytest.approx(sum(reward for _, _, reward in DECISIONS), abs=1e-12)
    assert metrics == pytest.approx(METRICS)


def test_tasks_in_system_reward(simulator):
    sim = start(simulator, reward=RewardConfig(name="tasks-in-system", invalid_reward=-7))
    assert rewards_of(sim) == pytest.approx(TASKS_IN_SYSTEM, abs=1e-12)
    assert sim.metrics()["episode_return"] == pytest.approx(-18)  # all completed: minus the sum of the responses


def test_cut_at_the_horizon(simulator):
    # At 5.0: A2 finishes exactly then and counts; A1 would need until 6.5.
    sim = start(simulator, horizon_s=5)
    play(sim, *ACTIONS)
    assert sim.done
    assert sim.clock == 5
    assert_schedule(sim.schedule(), [(*row[:7], math.nan if row[:2] == (0, 1) else row[7]) for row in SCHEDULE])
    metrics = sim.metrics()
    assert (metrics["arrived"], metrics["completed"], metrics["unfinished"]) == (5, 4, 1)
    assert metrics["response_mean_s"] == pytest.approx(3)  # (1 + 4.5 + 3 + 3.5) / 4
    assert metrics["response_censored_s"] == pytest.approx(3.3)  # A1 counts 5 - 0.5 = 4.5: 16.5 / 5
    assert metrics["workflows_completed"] == 1
    assert metrics["jct_mean_s"] == pytest.approx(3.5)
    assert metrics["utilisation_slow"] == pytest.approx(0.5)  # 2.5 to 5.0 of A1
    assert metrics["energy_j"] == pytest.approx(10 * 5 + 40 * 2.5 + 20 * 5 + 80 * 1.5 + 40 * 5 + 160 * 3)
    assert sim.observation()[5 + 2] == 1.5  # A1 is still seen on server 0


@pytest.mark.parametrize(
    ("cut", "actions", "end"),
    [
        ({"horizon_s": 1.25}, [1, 0], 1.25),  # at 1.0 B0 does not fit: 0.25 s are left of the step
        ({"max_decisions": 7}, ACTIONS[:7], 3.0),  # the seventh is invalid at 2.5
        ({"max_decisions": 1}, [1], 0.5),  # A0 starts at 0.5; with nothing ready the clock would run on to 1.0
    ],
)
def test_an_episode_ends_at_its_horizon_or_right_after_its_last_decision(simulator, cut, actions, end):
    sim = start(simulator, **cut)
    play(sim, *actions)
    assert sim.done
    assert sim.clock == end
    assert sim.metrics()["decisions"] == len(actions)


def clocks_of(sim, actions):
    """The clock before each action; the last one ends the episode."""
    clocks = [sim.clock, *(clock for clock, _ in play(sim, *actions))]
    assert sim.done
    return clocks


def test_feasible_mask_waits_for_a_server_that_fits_the_current_task(simulator):
    # As before up to A1 on server 0 at 2.5, less the invalid decisions: A0 at 0.5, B0 at 1.0 on server 2 until 3.0.
    # A0 finishes at 1.5: A1 is asked for at 1.5 and goes to server 0 until 5.5.
    # A2 (10 GB) fits server 2 alone, busy until 3.0: no decision until then, though server 1 is idle.
    sim = start(simulator, mask="feasible")
    assert clocks_of(sim, [1, 2, 0, 2, 1]) == [0.5, 1.0, 1.5, 3.0, 3.0, 5.5]
    assert [row[:3] + row[6:8] for row in sim.schedule()] == [
        (0, 0, 1, 0.5, 1.5),
        (1, 0, 2, 1.0, 3.0),
        (0, 1, 0, 1.5, 5.5),
        (0, 2, 2, 3.0, 4.0),
        (1, 1, 1, 3.0, 3.5),
    ]


def test_idle_clock_step_looks_only_at_multiples_of_the_step(simulator):
    # Step 0.75: workflow 0 (0.5) is seen at 0.75, A0 runs on server 1 until 1.75. Workflow 1 (1.0) is seen at 1.5,
    # B0 runs on server 2 until 3.5. Then nothing is ready until A0 finishes at 1.75, which is seen at 2.25: A1 runs on
    # server 0 until 6.25. A2 must wait for server 2, two steps to 3.75, and B1, ready at 3.5, starts then too.
    # Steps to 4.5, 5.25 and 6.0; in the next one, at 6.25 exactly, the system is empty: the end.
    sim = start(simulator, idle_advance="clock-step", clock_step_s=0.75)
    assert clocks_of(sim, [1, 2, 0, 2, 2, 2, 1]) == [0.75, 1.5, 2.25, 2.25, 3.0, 3.75, 3.75, 6.25]
    assert [row[5:7] for row in sim.schedule()] == [(0.5, 0.75), (1.0, 1.5), (1.75, 2.25), (1.75, 3.75), (3.5, 3.75)]
