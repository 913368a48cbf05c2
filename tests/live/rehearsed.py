"""Plays a cluster, a router or a router of replicas whose clock runs, and prints what became ready to run only then.

`python -m live.rehearsed KIND SCHEDULER SEED`: in a process of its own, where nothing has been compiled or loaded.
"""

from __future__ import annotations

import gc
import sys

import numpy as np
from numba.core.dispatcher import Dispatcher

from live.virtual import VirtualBackend
from rllib_scale.config import EnvConfig, scenario
from rllib_scale.live.guard import Guard, play_guarded, rehearse_all
from rllib_scale.live.guarded_routing import GuardedRouting
from rllib_scale.live.holding import HoldingRouter
from rllib_scale.live.requests import Demand, Replica, RouterSettings
from rllib_scale.policies.make import make_policy
from rllib_scale.workloads.generators import generate


def ready() -> set[str]:
    """The functions and signatures whose machine code this process has."""
    found = [each for each in gc.get_objects() if isinstance(each, Dispatcher)]
    return {f"{each.py_func.__module__}.{each.py_func.__qualname__}" for each in found for _ in each.overloads}


class Troubled(VirtualBackend):
    """A live cluster in virtual time, on which attempts fail, outputs are lost and servers leave and return."""

    def __init__(self, env: EnvConfig, rng: np.random.Generator) -> None:
        super().__init__(env, generate(env, int(rng.integers(1000)), 0))
        self.rng, self.away = rng, -1

    def more(self) -> bool:
        """What happens next, and perhaps trouble."""
        engine, running = self.engine, self.engine.running()
        if self.away >= 0:
            engine.join(self.away)
            self.tell("join", self.away, engine.now)
            self.away = -1
        elif running and self.rng.random() < 0.5:
            attempt = running[self.rng.integers(len(running))]
            kind = self.rng.integers(4)
            ended = [k for k in range(attempt.task) if engine.has_ended(attempt.workflow, k)]
            if kind == 0:
                engine.failed(attempt)
                self.tell("failed", attempt, engine.now)
            elif kind == 1 and ended:
                engine.lost(attempt.workflow, ended[-1])
                self.tell("lost", (self.flows[attempt.workflow], ended[-1]), engine.now)
            elif kind <= 2:
                self.away = attempt.server
                engine.leave(self.away)
                self.tell("leave", self.away, engine.now)
            else:
                self.give_up(attempt.workflow)
            return True
        return super().more()


OF_ROUTERS = ({"guard": {"scheduler": "sticky", "margin": 0.0, "window": 10}}, {"replica": "h100/8b"})
"""Settings of a router of places, and of one of replicas of a language model."""


def cluster(scheduler: str, rng: np.random.Generator) -> set[str]:
    """A guarded policy; the guard takes over as soon as it can."""
    env = scenario("steady-0.7").at_scale(4)
    policy = make_policy(scheduler, env)
    guard = rehearse_all(policy, env, Guard("fastest-idle", margin=0.0, window=10))
    policy.reset([(0, 0)])
    backend = Troubled(policy.problem(env), rng)
    before = ready()
    play_guarded(policy, backend, env, guard)
    return ready() - before


def router(scheduler: str, rng: np.random.Generator) -> set[str]:
    """A router, guarded unless it is one of replicas, whose replicas change."""
    on_replicas = scheduler == "lmetric"
    settings = RouterSettings(scheduler=scheduler, **OF_ROUTERS[on_replicas])
    routing = (HoldingRouter if on_replicas else GuardedRouting)(settings)
    before = ready()
    for key in range(200):
        routing.arrive(key, Demand(session=str(rng.integers(8))), routing.clock())
        replicas = [Replica(f"r{at}", 2, 1.0, 10.0) for at in range(1 + key % 50 // 10)]
        for started, _ in routing.round(replicas, {"r0": 1}):
            routing.leave(started, "answered" if rng.random() < 0.8 else "dropped")
        if key % 50 == 49:
            routing.lost("r1")
    return ready() - before


if __name__ == "__main__":
    kind, scheduler, seed = sys.argv[1:]
    print(*sorted({"cluster": cluster, "router": router}[kind](scheduler, np.random.default_rng(int(seed)))))
