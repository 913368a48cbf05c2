"""One small instance worked out by hand for each thing the simulator plays beyond the paper's mode."""

import math

import numpy as np
import pytest

from reference.changes import change_events
from reference.factors import estimate_factors, straggler_factors
from rllib_scale.config import ClusterConfig, EnvConfig
from rllib_scale.config.cluster import ChangesConfig
from simulator.literal import attempts, play, problem, task, tier, workflow, workload

AWAY = math.inf
RESERVE = {"on_busy": "reserve"}


# ------------------------------------------------------------------- the order of tasks

FIRST_ARRIVAL, FIRST_READY = [(0, 1), (2, 0)], [(2, 0), (0, 1)]


@pytest.mark.parametrize(
    ("order", "ties", "expected"),
    [
        ("longest-hop", "first-ready", FIRST_READY),  # B and C are both sinks
        ("longest-hop", "first-arrival", FIRST_ARRIVAL),
        ("shortest-task", "first-ready", FIRST_READY),  # both have 4 GFLOP
        ("shortest-task", "first-arrival", FIRST_ARRIVAL),
        ("first-ready", "first-arrival", FIRST_READY),  # the order says so itself
        ("first-arrival", "first-ready", FIRST_ARRIVAL),
        ("open", "first-ready", FIRST_READY),  # by longest-hop
        ("open", "first-arrival", FIRST_ARRIVAL),
    ],
)
@pytest.mark.parametrize("on_busy", ["step", "reserve"])
def test_which_of_two_tasks_of_equal_rank_is_offered_first(simulator, on_busy, order, ties, expected):
    # P, of the first workflow, runs from 0 to 2, and B follows it. X, of the second, arrives at 0.5, runs after P, to
    # 3; C arrives at 1, of the third. At 3 both B, ready at 2, and C, ready at 1, wait.
    chain = workflow(0.5, task(1), task(1), task(1), edges=[(0, 1), (1, 2)])
    given = workload(workflow(0, task(2), task(4), edges=[(0, 1)]), chain, workflow(1, task(4)))
    sim = simulator(
        problem(tier(), decision={"on_busy": on_busy, "order": order, "ties": ties}, mask="feasible"), given
    )
    while not sim.done:
        sim.step(0)
    started = [row[:2] for row in sim.schedule()]
    assert started[0] == (0, 0)
    assert [each for each in started if each in expected] == expected
    assert len(started) == 6


# ------------------------------------------------------------------- release delays


def test_a_task_is_ready_its_delay_after_the_arrival_and_after_its_last_predecessor(simulator):
    # A arrives at 1 and is released at 1.5, runs 2 s to 3.5; B is released 1.5 later, at 5, and runs to 6.
    given = workload(workflow(1, task(2, delay=0.5), task(1, delay=1.5), edges=[(0, 1)]))
    sim = simulator(problem(tier()), given)
    assert sim.clock == 1.5
    assert play(sim, 0) == [(5, "started")]
    assert sim.elapsed == 3.5
    assert play(sim, 0) == [(6, "started")]
    assert sim.done
    assert attempts(sim) == [(0, 0, 0, 1.5, 1.5, 3.5, "finished"), (0, 1, 0, 5, 5, 6, "finished")]
    assert sim.metrics()["response_mean_s"] == 3.75  # 3.5 - 1 and 6 - 1
    assert sim.metrics()["jct_mean_s"] == 5


# ------------------------------------------------------------------- transfers

# A (output 1 GB) runs on server 0, B (3 GB) on server 1, C needs both. Latency 1/4: A's takes 0.75 s, B's 1.75 s.
TRANSFERS = [
    ("first", "lowest-index", [0, 0.75, 0.75]),  # A's
    ("first", "largest-output", [1.75, 0, 1.75]),  # B's
    ("all", "lowest-index", [1.75, 0.75, 2.5]),
]


@pytest.mark.parametrize("server", range(3))
@pytest.mark.parametrize(("predecessors", "first", "transfers"), TRANSFERS)
@pytest.mark.parametrize("mode", ["reward", "transfer"])
def test_which_outputs_are_moved_and_whether_that_takes_time(simulator, mode, predecessors, first, transfers, server):
    communication = {"mode": mode, "predecessors": predecessors, "first": first}
    given = workload(workflow(0, task(1, output=1), task(1, output=3), task(2), edges=[(0, 2), (1, 2)]))
    sim = simulator(problem(tier(count=3), communication=communication, cluster={"latency_s": 0.25}), given)
    play(sim, 0, 1)
    assert sim.clock == 1
    np.testing.assert_allclose(sim.observation()[5:].reshape(3, 5)[:, 4], transfers)
    play(sim, server)
    # C executes for 2 s; its place is taken for the transfer before it, too, in mode transfer.
    moved = transfers[server] if mode == "transfer" else 0
    assert sim.clock == 3 + moved
    #   exp(-tau / 2)  -  0.5 delta / 2  -  0.25 * 50 W * tau / 100 J
    reward = math.exp(-(2 + moved) / 2) - transfers[server] / 4 - (2 + moved) / 8
    assert sim.reward == pytest.approx(reward, abs=1e-12)
    assert sim.schedule()[2][8:] == ("finished", moved, 2)
    assert sim.metrics()["lost_s"] == 0


# ------------------------------------------------------------------- places


def test_the_places_of_a_server_share_its_memory_and_its_power(simulator):
    # A 6 GB to 4.0: one place is taken, so the server shows 0 s and half the way from 10 to 50 W. B 6 GB: 4 GB of 10
    # are free, it fits but not now. C 4 GB fits exactly, to 2.5: both places are taken, 2 s from 0.5 on.
    decision = {"order": "open", "candidates": 2}
    given = workload(workflow(0, task(4, 6), task(4, 6), task(2, 4)))
    sim = simulator(problem(tier(max_concurrent=2), decision=decision), given)
    assert sim.fit().tolist() == [[2], [2]]
    assert sim.observation()[10:].tolist() == [0.25, 0.625, 0, 10, 0]
    play(sim, 0)
    assert sim.reward == pytest.approx(math.exp(-4 / 2) - 0.25 * (50 / 2) * 4 / 100, abs=1e-12)
    assert sim.offers() == [(0, 1), (0, 2)]
    assert sim.fit().tolist() == [[1], [2]]
    assert sim.observation()[10:].tolist() == [0.25, 0.625, 0, 30, 0]
    assert sim.available().tolist() == [0]
    assert play(sim, 0) == [(0.5, "busy")]  # B
    assert play(sim, 1) == [(0.5, "started")]  # C
    assert sim.observation()[10:].tolist() == [0.25, 0.625, 2, 50, 0]
    assert sim.available().tolist() == [2.5]
    # A place is free from 2.5 on, but B fits from 4.0 on, when A ends: seven steps of 0.5 s.
    assert play(sim, *[0] * 5) == [(1 + k / 2, "busy") for k in range(5)]
    assert sim.available().tolist() == [3]
    assert sim.observation()[10:].tolist() == [0.25, 0.625, 0, 30, 0]
    assert play(sim, 0, 0) == [(3.5, "busy"), (4, "busy")]
    assert play(sim, 0) == [(8, "started")]
    metrics = sim.metrics()
    assert (metrics["invalid_busy_avoidable"], metrics["invalid_busy_unavoidable"]) == (0, 8)
    # Places are taken for 4 s, 2 s and 4 s of 2 x 8 s. The server idles at 10 W; a busy place adds (50 - 10) / 2 W.
    assert metrics["utilisation"] == 10 / 16
    assert metrics["energy_j"] == 10 * 8 + 20 * 10


def test_a_task_of_several_places_takes_them_all(simulator):
    # Server 0 has two places, server 1 has three and the label. A takes two places of either, B three of server 1, and
    # C needs the label. A on 1 to 4.0: B fits there but not now, C now.
    tasks = [task(4) | {"places": 2}, task(3) | {"places": 3}, task(2) | {"labels": ["eu"]}]
    given = workload(workflow(0, *tasks))
    tiers = tier("small", max_concurrent=2), tier("large", max_concurrent=3, slowdown=0.5, labels=["eu"])
    sim = simulator(problem(*tiers, decision={"order": "open", "candidates": 3}), given)
    assert sim.fit().tolist() == [[2, 2], [0, 2], [0, 2]]
    play(sim, 1)  # A on the large one
    assert sim.reward == pytest.approx(math.exp(-4 / 2) - 0.25 * (50 * 2 / 3) * 4 / 100, abs=1e-12)
    assert sim.offers() == [(0, 1), (0, 2)]
    assert sim.fit().tolist() == [[0, 1], [0, 2], [0, 0]]
    assert sim.available().tolist() == [0, 0]  # one place is free
    assert play(sim, 2, 1) == [(0.5, "no_fit"), (1, "busy")]  # C on the small one, B on the large one
    # C beside two places that are taken: 2 x (1 + 0.5 x 2) = 4 s, to 5.0; then B from 5.0 on, to 8.0.
    assert play(sim, 3) == [(1, "started")]
    assert sim.available().tolist() == [1, 4]
    assert play(sim, *[1] * 8) == [(1.5 + k / 2, "busy") for k in range(8)]
    assert play(sim, 1) == [(8, "started")]
    metrics = sim.metrics()
    assert metrics["utilisation_large"] == pytest.approx((2 * 4 + 4 + 3 * 3) / (3 * 8))
    assert metrics["energy_j"] == pytest.approx(2 * 10 * 8 + 40 / 3 * (2 * 4 + 4 + 3 * 3))


def test_other_tasks_slow_an_execution_as_they_are_at_its_start(simulator):
    # A, alone, takes 4 s. B takes 4 x 1.5 s beside it, C 4 x 2 s beside both; A and B go on as they were.
    sim = simulator(problem(tier(max_concurrent=3, slowdown=0.5)), workload(workflow(0, task(4), task(4), task(4))))
    play(sim, 0, 0, 0)
    assert [row[5] for row in attempts(sim)] == [4, 6, 8]


TWO_PLACES = (tier("two", max_concurrent=2, slowdown=0.5), tier("other"))


def test_a_server_with_a_free_place_that_is_waited_for_is_closed_until_the_round_ends(simulator):
    # A (6 GB) on server 0 to 4. B (6 GB) waits for it: as if both places worked on it beside one other task,
    # 4 x 1.5 / 2 = 3 s, from now on, for a place is free. C (1 GB) has place and memory there, but no task is let in.
    given = workload(workflow(0, task(4, 6), task(4, 6), task(2, 1)))
    sim = simulator(problem(*TWO_PLACES, decision=RESERVE), given)
    assert play(sim, 0) == [(0, "started")]
    assert (sim.fit().tolist(), sim.available().tolist()) == ([[1, 2]], [0, 0])
    assert play(sim, 0) == [(0, "waits")]
    assert (sim.offers(), sim.fit().tolist(), sim.available().tolist()) == ([(0, 2)], [[1, 2]], [3, 0])
    assert sim.observation()[7] == 0  # what waits is no part of the remaining time
    assert play(sim, 1) == [(2, "started")]  # C on server 1; no candidate is left: on to its end
    assert (sim.offers(), sim.fit().tolist(), sim.available().tolist()) == ([(0, 1)], [[1, 2]], [2, 2])
    assert play(sim, 1) == [(6, "started")]
    assert [row[2:6] for row in attempts(sim)] == [(0, 0, 0, 4), (1, 0, 0, 2), (1, 0, 2, 6)]


def test_a_full_server_is_available_when_its_next_task_ends_and_what_waits_is_done(simulator):
    # A on server 0 to 4, B beside it to 2 x 1.5 = 3. C waits for it: 4 x 1.5 / 2 = 3 s more, D 2 x 1.5 / 2 = 1.5 s.
    given = workload(workflow(0, task(4), task(2), task(4), task(2), task(1)))
    sim = simulator(problem(*TWO_PLACES, decision=RESERVE), given)
    play(sim, 0, 0)
    assert (sim.fit().tolist(), sim.available().tolist()) == ([[1, 2]], [3, 0])
    assert sim.observation()[5:10].tolist() == [0.25, 0.625, 3, 50, 0]
    assert play(sim, 0, 0) == [(0, "waits"), (0, "waits")]
    assert sim.available().tolist() == [7.5, 0]


def test_a_server_with_places_that_drains_leaves_with_the_last_of_its_tasks(simulator):
    # A to 2 and B to 4 on server 0, drained at 1: both places count for 4 s. C, at 2, finds no server until 5.
    changes = [{"time_s": 1, "event": "drain", "servers": [0]}, {"time_s": 5, "event": "join", "servers": [0]}]
    given = workload(workflow(0, task(2), task(4)), workflow(2, task(1)))
    sim = simulator(problem(tier(max_concurrent=2), changes=changes, mask="feasible"), given)
    assert play(sim, 0, 0) == [(0, "started"), (5, "started")]
    assert play(sim, 0) == [(6, "started")]
    assert sim.metrics()["utilisation"] == (2 + 4 + 1) / (2 * (4 + 1))


# ------------------------------------------------------------------- changes


def test_what_runs_on_a_server_that_fails_starts_anew_elsewhere(simulator):
    # A runs on server 0 from 0 on; it fails at 2. A runs on server 1 (2 GFLOPS) from 2 to 4.
    tiers = (tier(), tier("two", compute=2))
    changes = [{"time_s": 2, "event": "fail", "servers": [0]}]
    sim = simulator(problem(*tiers, changes=changes), workload(workflow(0, task(4))))
    assert play(sim, 0) == [(2, "started")]
    assert sim.offers() == [(0, 0)]
    assert sim.fit().tolist() == [[0, 2]]
    assert sim.available().tolist() == [AWAY, 2]
    assert sim.observation()[5:10].tolist() == [0] * 5
    assert play(sim, 1) == [(4, "started")]
    assert attempts(sim) == [(0, 0, 0, 0, 0, 2, "failed"), (0, 0, 1, 2, 2, 4, "finished")]
    assert [row[10] for row in sim.schedule()] == [2, 4]  # GFLOP
    metrics = sim.metrics()
    assert (metrics["failed_attempts"], metrics["lost_s"], metrics["response_mean_s"]) == (1, 2, 4)
    assert metrics["utilisation"] == 4 / 6  # 2 s on each; server 0 was there for 2 s, server 1 for 4
    assert metrics["utilisation_one"] == 1
    assert metrics["energy_j"] == 50 * 2 + 10 * 2 + 50 * 2


def test_a_task_that_ends_as_its_server_fails_has_ended(simulator):
    changes = [{"time_s": 2, "event": "fail", "servers": [0]}]
    sim = simulator(problem(tier(), changes=changes), workload(workflow(0, task(2))))
    assert play(sim, 0) == [(2, "started")]
    assert sim.done
    assert attempts(sim) == [(0, 0, 0, 0, 0, 2, "finished")]


def test_a_server_that_drains_ends_its_task_takes_no_other_and_leaves(simulator):
    # A runs on server 0 to 4, drained from 1 on; B arrives at 2. Server 0 was there for 4 s; it joins again at 6.
    changes = [{"time_s": 1, "event": "drain", "servers": [0]}, {"time_s": 6, "event": "join", "servers": [0]}]
    given = workload(workflow(0, task(4)), workflow(2, task(5)), workflow(7, task(1)))
    sim = simulator(problem(tier(count=2), changes=changes), given)
    assert play(sim, 0) == [(2, "started")]
    assert sim.fit().tolist() == [[0, 2]]
    assert sim.available().tolist() == [AWAY, 2]
    assert play(sim, 0) == [(2.5, "no_fit")]
    assert play(sim, 1) == [(7, "started")]  # B runs to 7.5
    assert sim.fit().tolist() == [[2, 1]]
    assert play(sim, 0) == [(8, "started")]
    assert [row[6] for row in attempts(sim)] == ["finished"] * 3
    assert sim.metrics()["utilisation"] == (4 + 5 + 1) / (4 + 2 + 8)


def test_a_server_that_drains_goes_on_when_it_joins(simulator):
    changes = [{"time_s": 1, "event": "drain", "servers": [0]}, {"time_s": 2, "event": "join", "servers": [0]}]
    given = workload(workflow(0, task(4)), workflow(3, task(1)))
    sim = simulator(problem(tier(), changes=changes), given)
    play(sim, 0)
    assert sim.clock == 3
    assert sim.fit().tolist() == [[1]]
    assert sim.available().tolist() == [4]


def test_a_server_is_away_until_its_first_change_where_that_is_a_join(simulator):
    # mask feasible: the 9 GB fit server 1 alone, which joins at 3.
    tiers = (tier(memory=5), tier("two", memory=9))
    changes = [{"time_s": 3, "event": "join", "servers": [1]}]
    sim = simulator(problem(*tiers, changes=changes, mask="feasible"), workload(workflow(0, task(1, 9))))
    assert sim.clock == 3
    assert sim.fit().tolist() == [[0, 2]]
    play(sim, 1)
    assert sim.metrics()["utilisation"] == 1 / (4 + 1)


def test_a_share_names_the_last_servers_of_each_tier():
    # Of 5 servers 0.3 are 1.5, so 2: numbers 3 and 4. Of 1 server 0.3 are 0.3, so at least 1: number 5.
    tiers = (tier(count=5), tier("two"))
    changes = [
        {"time_s": 4, "event": "fail", "share": 0.3},
        {"time_s": 1, "event": "drain", "share": 0.5, "tiers": ["one"]},  # 2.5 of 5, so 3
        {"time_s": 4, "event": "join", "servers": [0, 4]},
    ]
    events = [tuple(event) for event in change_events(problem(*tiers, changes=changes).cluster, 0, 0, 20)]
    assert events[:3] == [(1, "drain", 2), (1, "drain", 3), (1, "drain", 4)]
    assert events[3:] == [(4, "fail", 3), (4, "fail", 4), (4, "fail", 5), (4, "join", 0), (4, "join", 4)]


def test_random_timelines_have_their_order_and_their_means():
    # Mean 10 s to a failure, 5 s of repair; 40 s to a departure, 2 s of notice, 3 s until the return.
    changes = ChangesConfig(
        failures_per_1000_h=3.6e5, repair_s=5, departures_per_h=90, notice_s=2, return_s=3, tiers=("one",)
    )
    cluster = ClusterConfig(tiers=(tier(count=40), tier("two", count=2)), changes=changes)
    events = change_events(cluster, 3, 1, 2000)
    assert [time for time, _, _ in events] == sorted(time for time, _, _ in events)
    assert {server for _, _, server in events} == set(range(40))  # none of tier two
    up, away = [], {"fail": [], "drain": []}
    for server in range(40):
        own, since = iter([(time, event) for time, event, number in events if number == server]), 0.0
        for time, event in own:
            gone, back = time, next(own, None)
            if event == "drain" and back:
                assert back == (pytest.approx(time + 2), "fail")
                gone, back = back[0], next(own, None)
            if back:
                assert back[1] == "join"
                up.append(time - since)
                away[event].append(back[0] - gone)
                since = back[0]
    # Whichever is first: mean 1 / (1/10 + 1/40) = 8 s; four of five are failures. About 6000 draws: 5 % are 4 sigma.
    assert np.mean(up) == pytest.approx(8, rel=0.05)
    assert len(away["fail"]) / len(up) == pytest.approx(0.8, abs=0.03)
    assert np.mean(away["fail"]) == pytest.approx(5, rel=0.07)
    assert np.mean(away["drain"]) == pytest.approx(3, rel=0.15)


# ------------------------------------------------------------------- rounds


def test_a_task_that_waits_for_a_busy_server_lets_the_others_be_offered(simulator):
    # Servers: slow (1 GFLOPS), fast (4). Three tasks of 4 GFLOP at 0; fast takes 1 s for each.
    sim = simulator(
        problem(tier("slow"), tier("fast", compute=4), decision=RESERVE),
        workload(workflow(0, task(4), task(4), task(4))),
    )
    seen = []
    for action in (1, 1, 1):
        seen.append((sim.offers(), sim.fit().tolist(), sim.available().tolist()))
        sim.step(action)
    # A starts on fast; B waits for it, from 1 to 2 as seen; C is offered in the same round and waits, too: to 3.
    assert seen == [
        ([(0, 0)], [[2, 2]], [0, 0]),
        ([(0, 1)], [[2, 1]], [0, 1]),
        ([(0, 2)], [[2, 1]], [0, 2]),
    ]
    # No candidate is left: on to 1.0, where A ends. A new round: nothing is reserved, B is offered again.
    assert (sim.clock, sim.elapsed, sim.outcome, sim.reward) == (1, 1, "waits", 0)
    assert (sim.offers(), sim.fit().tolist(), sim.available().tolist()) == ([(0, 1)], [[2, 2]], [1, 1])
    assert play(sim, 1, 1) == [(1, "started"), (2, "waits")]
    assert play(sim, 1) == [(3, "started")]
    assert [row[2:6] for row in attempts(sim)] == [(1, 0, 0, 1), (1, 0, 1, 2), (1, 0, 2, 3)]
    assert (sim.metrics()["waits"], sim.metrics()["decisions"]) == (3, 6)


def test_a_round_ends_when_no_server_is_left_to_use(simulator):
    # Two servers, three tasks: with both taken the third is not asked for before the next event.
    sim = simulator(problem(tier(count=2), decision=RESERVE), workload(workflow(0, task(2), task(3), task(1))))
    assert play(sim, 0, 1) == [(0, "started"), (2, "started")]


def test_a_closed_server_and_a_pass_leave_the_task_out_of_the_round(simulator):
    # Server 0 has 1 GB. A and B (2 GB each): A on server 0 is closed, B is passed; C starts there. At 1 all are
    # asked again.
    config = problem(tier(memory=1), tier("two"), decision=RESERVE)
    sim = simulator(config, workload(workflow(0, task(2, 2), task(2, 2), task(1))))
    assert play(sim, 0) == [(0, "no_fit")]
    assert (sim.reward, sim.elapsed, sim.offers()) == (-0.125, 0, [(0, 1)])
    assert play(sim, 2) == [(0, "passed")]
    assert sim.offers() == [(0, 2)]
    assert play(sim, 0) == [(1, "started")]
    assert sim.offers() == [(0, 0)]
    metrics = sim.metrics()
    assert (metrics["invalid_no_fit"], metrics["passed"]) == (1, 1)


def test_a_masked_round_offers_only_tasks_with_an_open_server(simulator):
    # A (8 GB) runs on the large server to 4. B (8 GB) has no open one and is left out; C (1 GB) is offered.
    config = problem(tier("large"), tier("small", memory=2), decision=RESERVE, mask="feasible")
    sim = simulator(config, workload(workflow(0, task(4, 8), task(4, 8), task(2))))
    assert play(sim, 0) == [(0, "started")]
    assert sim.offers() == [(0, 2)]
    # C waits for the large server: the round ends, nothing but B is left. At 4 B and C are offered.
    assert play(sim, 0) == [(4, "waits")]
    assert sim.offers() == [(0, 1)]


def test_open_candidates_are_refilled_in_order(simulator):
    # Demands 4, 2, 1, 3 in order of arrival: K = 2 by shortest-task are C (1), B (2); then D (3), A (4).
    decision = RESERVE | {"order": "open", "candidates": 2, "open_by": "shortest-task"}
    sim = simulator(
        problem(tier(count=4), decision=decision), workload(workflow(0, task(4), task(2), task(1), task(3)))
    )
    assert sim.offers() == [(0, 2), (0, 1)]
    assert play(sim, 4) == [(0, "started")]  # candidate 1, B, on server 0
    assert sim.offers() == [(0, 2), (0, 3)]
    assert sim.fit().tolist() == [[1, 2, 2, 2], [1, 2, 2, 2]]
    assert play(sim, 8) == [(0, "passed")]  # both
    assert sim.offers() == [(0, 0)]
    assert sim.fit().tolist() == [[1, 2, 2, 2], [0, 0, 0, 0]]
    assert play(sim, 2) == [(2, "started")]  # B ends at 2
    assert sim.offers() == [(0, 2), (0, 3)]


# ------------------------------------------------------------------- progress, passes, the end


@pytest.mark.parametrize("on_busy", ["step", "reserve"])
def test_where_nothing_would_happen_any_more_the_first_task_starts(simulator, on_busy):
    # A (8 GB) fits server 1 alone. Passed at 0, it is asked for again when B arrives at 5 (step: A first, a pass again
    # ends the round; reserve: B is offered next). No event is to come: A, first in order, starts on server 1, unasked,
    # to 8.
    config = problem(tier(memory=2), tier("two"), decision={"on_busy": on_busy, "order": "first-arrival"})
    sim = simulator(config, workload(workflow(0, task(3, 8)), workflow(5, task(1))))
    assert play(sim, 2) == [(5, "passed")]
    if on_busy == "reserve":
        assert play(sim, 2) == [(5, "passed")]
    assert sim.offers() == [(0, 0) if on_busy == "step" else (1, 0)]
    assert play(sim, 2) == [(8, "passed")]
    assert sim.reward == 0
    assert attempts(sim)[0] == (0, 0, 1, 0, 5, 8, "finished")
    assert sim.metrics()["decisions"] == (2 if on_busy == "step" else 3)
    assert play(sim, 2)[0] == (9, "passed")  # B starts on server 0
    assert sim.done


def test_answers_that_cannot_be_are_refused_and_change_nothing(simulator):
    # K = 2, N = 1, one task is offered: 0 starts it, 1 is for a second candidate, 2 passes.
    decision = {"order": "open", "candidates": 2}
    sim = simulator(problem(tier(), decision=decision), workload(workflow(1, task(2)), workflow(2, task(1))))
    for action in (1, 3, 4, 99, -1):
        with pytest.raises(ValueError, match=r"\d"):  # it names the answer
            sim.step(action)
        assert (sim.clock, sim.metrics()["decisions"], sim.offers()) == (1, 0, [(0, 0)])
    assert play(sim, 0) == [(2, "started")]


# ------------------------------------------------------------------- dispatchers


def test_a_dispatcher_starts_and_reserves_in_one_go(simulator):
    # A (4 GFLOP), B (1) and C (5) arrive at 1: B starts on server 0, A waits for it, C starts on server 1. Time runs to
    # 2, where B ends and A waits; A runs from 2 to 6, C from 1 to 6.
    given = workload(workflow(1, task(4)), workflow(1, task(1)), workflow(1, task(5)))
    sim = simulator(problem(tier(count=2), decision=RESERVE), given)
    sim.dispatch([(1, 0, 0), (0, 0, 0), (2, 0, 1)])
    assert (sim.clock, sim.elapsed) == (2, 1)
    assert sim.available().tolist() == [2, 6]
    sim.dispatch([(0, 0, 0)])
    assert sim.done
    metrics = sim.metrics()
    assert (metrics["decisions"], metrics["waits"]) == (4, 1)
    assert [row[5] for row in attempts(sim)] == [2, 6, 6]


# ------------------------------------------------------------------- information


def test_what_is_seen_of_a_task_has_an_error_what_happens_has_not(simulator):
    config = problem(tier(compute=2), information={"estimate_error": 0.5}, decision={"order": "shortest-task"})
    given = workload(workflow(0, *[task(4)] * 6), workflow(1, task(4)))
    factors = estimate_factors(config, 0, 0, given)
    assert len(set(factors)) == 7
    assert (factors > 0).all()
    sim = simulator(config, given)
    first = int(np.argmin(factors[:6]))  # seen as the shortest
    assert sim.offers() == [(0, first)]
    assert sim.observation()[0] == pytest.approx(4 * factors[first] / 8)
    sim.step(0)
    assert sim.available()[0] == pytest.approx(2 * factors[first])
    assert sim.observation()[7] == pytest.approx(2 * factors[first])
    play(sim, 1)  # a pass: on to 1.0
    expected = 2 * factors[first]
    assert sim.available()[0] == pytest.approx(max(1, expected))
    assert sim.observation()[7] == pytest.approx(max(0, expected - 1))
    play(sim, 1)
    assert sim.clock == 2  # the true end
    assert attempts(sim)[0][5:] == (2, "finished")
    assert sim.schedule()[0][10] == 4


def test_a_straggler_takes_longer_than_anybody_is_told(simulator):
    told = {"straggler_share": 1.0, "straggler_factor": 3.0}
    changes = [{"time_s": 3, "event": "fail", "servers": [0]}, {"time_s": 4, "event": "join", "servers": [0]}]
    config = problem(tier(compute=2), information=told, changes=changes, mask="feasible")
    sim = simulator(config, workload(workflow(0, task(4))))
    assert sim.observation()[0] == pytest.approx(4 / 8)
    sim.step(0)  # known to end at 2, it would at 6; at 3 its server fails, after 6 of 12 GFLOP
    assert sim.clock == 4
    assert sim.observation()[0] == pytest.approx(4 / 8)
    sim.step(0)
    assert sim.available()[0] == pytest.approx(10 if sim.done else 6)
    assert [row[7:9] for row in sim.schedule()] == [(3, "failed"), (10, "finished")]
    assert [row[10] for row in sim.schedule()] == [6, 12]


def test_stragglers_and_errors_of_estimates_are_drawn_apart_and_as_said():
    config = EnvConfig(information={"estimate_error": 0.5, "straggler_share": 0.05, "straggler_factor": 5})
    given = workload(workflow(0, *[task(4)] * 4000))
    slow, seen = straggler_factors(config, 0, 0, given), estimate_factors(config, 0, 0, given)
    assert set(slow) == {1.0, 5.0}
    assert (slow == 5).mean() == pytest.approx(0.05, abs=0.014)  # 4 standard deviations
    # ln: variance ln(1.25) = 0.2231, mean -0.1116; sigma of their estimates 0.005 and 0.0075
    assert np.log(seen).var() == pytest.approx(math.log(1.25), abs=0.025)
    assert np.log(seen).mean() == pytest.approx(-math.log(1.25) / 2, abs=0.03)
    for factors, alone in ((straggler_factors, {"straggler_share": 0.05}), (estimate_factors, {"estimate_error": 0.5})):
        assert np.array_equal(factors(EnvConfig(information=alone), 0, 0, given), factors(config, 0, 0, given))
        assert not np.array_equal(factors(config, 0, 1, given), factors(config, 0, 0, given))
        assert (factors(EnvConfig(), 0, 0, given) == 1).all()


@pytest.mark.parametrize(
    ("workflows", "order", "offers"),
    [
        ("whole", "longest-hop", [(1, 0), (0, 0), (0, 1)]),
        ("whole", "most-descendants", [(1, 0), (0, 0), (0, 1)]),
        ("whole", "descendants-per-work", [(0, 1), (1, 0), (0, 0)]),
        ("revealed", "longest-hop", [(0, 0), (0, 1), (1, 0)]),
        ("revealed", "most-descendants", [(0, 0), (0, 1), (1, 0)]),
        ("revealed", "descendants-per-work", [(0, 1), (0, 0), (1, 0)]),
        ("revealed", "shortest-task", [(0, 1), (0, 0), (1, 0)]),
    ],
)
def test_only_what_is_revealed_counts(simulator, workflows, order, offers):
    # A (4 GFLOP) and B (1 GFLOP) of workflow 0, C (5 GFLOP) of workflow 1, which D, E and F follow: descendants per
    # work 1/4, 1 and 4/5.
    decision = {"order": "open", "candidates": 3, "open_by": order}
    given = workload(
        workflow(0, task(4), task(1)), workflow(0, task(5), *[task(1)] * 3, edges=[(0, 1), (0, 2), (2, 3)])
    )
    sim = simulator(problem(tier(count=3), decision=decision, information={"workflows": workflows}), given)
    assert sim.offers() == offers


def test_a_workflow_is_as_large_as_what_is_seen_of_it(simulator):
    # A -> B, A -> C with a delay: with A ended, B is 1 of 3 done as a whole, and 1 of 3 seen, for C is seen, not ready.
    # Before that A has two successors and is 0 of 3; as seen it has none.
    given = workload(workflow(0, task(1), task(1), task(1, delay=9), task(1), edges=[(0, 1), (0, 2), (1, 3)]))
    for workflows, successors, ended in (("whole", [2, 1], [0, 1 / 4]), ("revealed", [0, 0], [0, 1 / 3])):
        sim = simulator(problem(tier(), information={"workflows": workflows}), given)
        for k in range(2):
            assert sim.observation()[2] == pytest.approx(successors[k] / 5)
            assert sim.observation()[3] == pytest.approx(ended[k])
            sim.step(0)
