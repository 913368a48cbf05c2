"""Dispatchers that reserve: literal instances, a plain price rule with the simulator's own reservations, properties."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from click.testing import CliRunner

from rllib_scale.cli import main
from rllib_scale.config import EnvConfig, NamedOrder
from rllib_scale.config.schedulers import PriceParameters
from rllib_scale.evaluation.play import play
from rllib_scale.observation.answers import WAITS, Answer
from rllib_scale.schedulers.reserving import class_prices
from rllib_scale.schedulers.rules import make_scheduler
from rllib_scale.simulator.backend import SimulatedBackend
from rllib_scale.simulator.engine import Engine
from schedulers.instances import THREE, TWO, cluster, starts
from small_moments import workload

# ------------------------------------------------------------------- literal instances


def test_a_task_that_must_wait_for_memory_blocks_nobody() -> None:
    # At 0, big task 0 takes fast; at 1, workflow 1 begins with a big task, first by its hop, and 2 with a small one.
    given = workload((0, [(8, 20)], []), (1, [(2, 20), (2, 5)], [[0, 1]]), (1, [(2, 5)], []))
    assert starts("fastest-idle", THREE, given)[2, 0][1] == 4.0  # behind the big one
    assert starts("non-blocking", THREE, given)[2, 0] == (0, 1.0)
    assert starts("non-blocking", THREE, given)[1, 0] == (2, 4.0)


def test_reserve_waits_for_the_fast_server_where_that_is_so_much_earlier() -> None:
    given = workload((0, [(4, 5)], []), (1.5, [(6, 5)], []))  # fast is busy until 2; then 3 s there, or 6 s on slow now
    assert starts("fastest-idle", TWO, given)[1, 0] == (0, 1.5)
    assert starts("reserve", TWO, given)[1, 0] == (1, 2.0)  # 1.5 x 3.5 s are less than 6 s
    assert starts("reserve:waiting=2", TWO, given)[1, 0] == (0, 1.5)  # 7 s are not


def test_who_waits_reserves_so_that_the_next_sees_a_later_server() -> None:
    given = workload((0, [(4, 5)], []), (1.5, [(6, 5)], []), (1.5, [(6, 5)], []))
    begun = starts("reserve", THREE, given)
    assert begun[1, 0] == (2, 2.0)
    assert begun[2, 0] == (0, 1.5)  # 1.5 x (3.5 + 3) s are more than 6 s: it starts though the other waits


def test_the_hungarian_method_gives_the_fast_server_to_whom_it_helps_most() -> None:
    given = workload((0, [(1, 5)], []), (0, [(8, 5)], []))
    for name in ("fastest-idle", "non-blocking"):
        assert starts(name, TWO, given) == {(0, 0): (1, 0.0), (1, 0): (0, 0.0)}
    assert starts("hungarian", TWO, given) == {(0, 0): (0, 0.0), (1, 0): (1, 0.0)}  # 1 + 4 s against 0.5 + 8 s


def test_the_hungarian_method_gives_a_server_to_as_many_as_have_a_place_and_the_memory() -> None:
    env = cluster((1, 1, 20), (1, 2, 20), places=2)
    small, large = workload((0, [(8, 5)] * 3, [])), workload((0, [(8, 15)] * 2, []))
    assert starts("hungarian", env, small) == {(0, 0): (1, 0.0), (0, 1): (1, 0.0), (0, 2): (0, 0.0)}
    assert starts("hungarian", env, large) == {(0, 0): (1, 0.0), (0, 1): (1, 4.0)}  # 5 GB are free until then


def test_a_price_keeps_the_fast_server_from_tasks_that_nothing_follows() -> None:
    alone, head = workload((0, [(4, 5)], [])), workload((0, [(4, 5)] * 3, [[0, 1], [0, 2]]))
    assert starts("price:prices=0", TWO, alone)[0, 0][0] == 1
    assert starts("price:prices=2", TWO, alone)[0, 0][0] == 0  # 4 s against 2 + 2 x 2
    assert starts("price:prices=2", TWO, head)[0, 0][0] == 1  # 9 x 4 against 9 x 2 + 2 x 2: two more wait for it


def test_prices_are_of_classes_of_speed() -> None:
    assert class_prices((1.0, 5.0), np.array([2.0, 1.0, 4.0, 0.0, 1.0, 8.0])).tolist() == [1, 0, 5, 0, 0, 5]
    assert class_prices((), np.array([2.0, 1.0])).tolist() == [0, 0]


# ------------------------------------------------------------------- the simulator's own reservations

SMALL = {
    "cluster": {"servers": 8, "bandwidth_gb_s": 1e15, "latency_s": 0},
    "workload": {"offered_load": 1.0, "output_gb": {"mean": 1e-9, "std": 0, "low": 1e-9}},
    "episode": {"horizon_s": 300, "arrivals_until_s": 30},
}


def play_prices(env: EnvConfig, episode: int, p: PriceParameters) -> list[tuple[Any, ...]]:
    """The price rule in plain words, every wait an answer to the simulator."""
    backend = SimulatedBackend(env, 5, episode)
    while (moment := backend.wait()) is not None:
        capacity, prices = moment.capacity_gflops, dict(zip((1.0, 2.0, 4.0), (0.0, *p.prices), strict=True))
        visits = []
        for task in moment.ready:
            workflow, after = moment.workflow(int(task["workflow"])), {int(task["task"])}
            for _ in workflow.task:
                after |= {int(s) for q, s in workflow.edges if int(q) in after}
            n = len(after)
            key = n**p.a * (task["compute_gflop"] / 10) ** p.b + p.age * (moment.clock_s - task["arrival_s"]) / 10
            visits.append((-key, task["ready_s"], task["workflow"], task["task"], n, task))
        for *_, n, task in sorted(visits, key=lambda visit: visit[:4]):
            now = backend.engine.snapshot()
            costs = []
            for j in range(len(capacity)):
                wait, takes = now.available_at_s[j] - now.clock_s, task["compute_gflop"] / capacity[j]
                cost = n**p.alpha * (p.kappa * wait + takes) + prices[capacity[j]] * takes + p.penalty * (wait > 0)
                costs.append(cost if task["memory_gb"] <= moment.memory_gb[j] else np.inf)
            outcome = backend.apply(Answer(int(task["workflow"]), int(task["task"]), int(np.argmin(costs))))
            assert outcome in ("started", "waits")
    assert backend.engine.metrics()["waits"] > 0
    return backend.engine.schedule().tolist()


@pytest.mark.parametrize("text", ["price", "price:prices=0.3/2,penalty=0.5,age=1,alpha=1,a=1"])
def test_own_reservations_are_the_simulators(text: str) -> None:
    rule = make_scheduler(text, EnvConfig().observation)
    waiting = EnvConfig.model_validate(SMALL | {"decision": {"on_busy": "reserve"}})
    for on_busy in ("step", "reserve"):
        env = EnvConfig.model_validate(SMALL | {"decision": {"on_busy": on_busy}})
        engine = play(rule, env, 5, [0, 1, 2])
        for episode in range(3):
            assert engine.schedule(episode).tolist() == play_prices(waiting, episode, rule.parameters)  # type: ignore[union-attr]


@pytest.mark.parametrize("order", get_args(NamedOrder))
@pytest.mark.parametrize("name", ["non-blocking", "reserve"])
def test_asked_about_the_task_on_offer_a_rule_of_the_same_order_plays_its_own_rounds(name: str, order: str) -> None:
    rounds = EnvConfig.model_validate(SMALL | {"decision": {"on_busy": "reserve", "order": order}})
    rule: Any = make_scheduler(f"{name}:order={order}", rounds.observation)
    engine = Engine(rounds, 3)
    engine.reset([5] * 3, [0, 1, 2])
    rule.reset([(5, k) for k in range(3)])
    waited = 0
    while not engine.done.all():
        going = np.flatnonzero(~engine.done).tolist()
        named = rule.servers_for(engine.view(), np.array([(engine.offers(b) or [(-1, -1)])[0] for b in range(3)]))
        engine.step(np.where(named < 0, engine.num_rows, named))
        waited += sum(engine.outcome[b] == WAITS for b in going)
    assert (waited > 0) == (name == "reserve")
    own = play(rule, EnvConfig.model_validate(SMALL), 5, [0, 1, 2])
    for b in range(3):
        assert engine.schedule(b).tolist() == own.schedule(b).tolist()


@pytest.mark.parametrize("order", get_args(NamedOrder))
def test_reserving_rounds_in_which_only_idle_servers_are_named_are_non_blocking(order: str) -> None:
    rounds = SMALL | {"decision": {"on_busy": "reserve", "order": order}}
    schedules = []
    for name, problem in (("fastest-idle", rounds), (f"non-blocking:order={order}", SMALL)):
        env = EnvConfig.model_validate(problem).with_mask("feasible")
        engine = play(make_scheduler(name, env.observation, "feasible"), env, 5, [0, 1, 2])
        schedules.append([engine.schedule(b).tolist() for b in range(3)])
    assert schedules[0] == schedules[1]


def test_a_rule_with_parameters_is_named_on_the_command_line(tmp_path: Any) -> None:
    path = tmp_path / "rows.csv"
    words = ["evaluate", "reserve:waiting=2.0", "--scenario=steady-0.5", "--scales=16", "--episodes=2"]
    done = CliRunner().invoke(main, [*words, f"--output={path}"])
    assert done.exit_code == 0, done.output
    header, *rows = path.read_text().splitlines()
    assert "observability" in header
    assert len(rows) == 2
    assert all("reserve:waiting=2.0," in row and "waiting tasks" in row for row in rows)
    listed = CliRunner().invoke(main, ["schedulers"], env={"COLUMNS": "200"}).output
    assert all(word in listed for word in ("waiting=1.5", "prices=0.8/6.6", "waiting tasks", "workflows"))
