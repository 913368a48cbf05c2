"""Whether a small change of the choice of servers improves `adaptive-price`, in its own order of tasks.

python analysis/studies/learning/headroom.py 60 each    # or 120 combined: how many problems, which no other study draws

A variant adds a multiple of a feature of the server, or of its product with one of the task, to the rule's cost in tau:
what the first steps of a training from `skip: adaptive` can do. Per cent against the rule, with 95 % intervals over
problems.
"""

import sys

import numpy as np

from rllib_scale.config import EnvConfig
from rllib_scale.config.family import Family
from rllib_scale.evaluation.candidates import Instance, outcomes_of
from rllib_scale.observation.relative import RELATIVE
from rllib_scale.observation.view import View
from rllib_scale.schedulers.asked_visits import AskedVisits
from rllib_scale.schedulers.reserving import VisitingDispatcher
from rllib_scale.workloads.family import draw_kind

ALONE = {"capacity": 0.05, "speed": 0.08, "memory": 0.05, "spare": 0.03, "lasts": 0.1, "ahead": 0.15, "busy": 0.1}
ALONE |= {"finish": 0.1, "price": 0.08}
BY_TASK = {
    ("descendants", "lasts"): 0.15,
    ("descendants", "ahead"): 0.2,
    ("descendants", "price"): 0.1,
    ("behind", "busy"): 0.2,
    ("demand", "speed"): 0.1,
    ("demand", "price"): 0.1,
    ("memory", "spare"): 0.05,
    ("waited", "busy"): 0.15,
    ("work", "busy"): 0.1,
    ("open", "busy"): 0.3,
    ("age", "busy"): 0.1,
    ("fits", "speed"): 0.1,
    ("load_6", "price"): 0.05,
}
"""Sizes of the changes, in tau: about a tenth of how much costs differ."""
HEAD, WIDTH, COST = RELATIVE.head(), RELATIVE.server_dim, RELATIVE.server_column("cost")
CHANGES = [(("1", name), size) for name, size in ALONE.items()] + list(BY_TASK.items())
Changes = dict[tuple[str, str], float]
EACH: dict[str, Changes] = {"the rule": {}}
EACH |= {f"{sign * size:+} {' x '.join(pair)}": {pair: sign * size} for pair, size in CHANGES for sign in (1, -1)}
WEIGHTED: Changes = {("1", "lasts"): -0.1, ("descendants", "lasts"): 0.15}
COMBINED: dict[str, Changes] = {
    "the rule": {},
    "longer for many descendants": WEIGHTED,
    "all of the first four, halved": {
        **{pair: size / 2 for pair, size in WEIGHTED.items()},
        **{("open", "busy"): 0.15, ("1", "busy"): 0.05},
    },
    "less time, price, wait at work": {("1", "lasts"): -0.1, ("1", "price"): 0.08, ("work", "busy"): 0.1},
}
"""What was best of EACH where workflows are revealed, together, for problems that had no part in the choice."""
STUDIES = {"each": (77, 9_000, EACH), "combined": (78, 19_000, COMBINED)}
"""Seed of the problems, of the first episode, and the variants."""
PROBLEMS, (DRAWN, FIRST, VARIANTS) = int(sys.argv[1]), STUDIES[sys.argv[2]]


class Changed(VisitingDispatcher):
    """Every copy of an episode is played by another variant."""

    def __init__(self) -> None:
        super().__init__()
        self.name, self.description, self.sees = "changed", "adaptive-price with changed costs", "workflows"
        names = ["1", *(feature.name for feature in (*RELATIVE.context, *RELATIVE.task))]
        self.weights = np.zeros((len(VARIANTS), len(names), WIDTH))
        for weights, changes in zip(self.weights, VARIANTS.values(), strict=True):
            for (task, name), size in changes.items():
                weights[names.index(task), RELATIVE.server_column(name)] = size
        self.weights[:, 0, COST] += 1.0

    def problem(self, env: EnvConfig) -> EnvConfig:
        """See `Policy.problem`."""
        self.moves_take_time = env.communication.mode == "transfer"
        return env

    def reset(self, seeds: list[tuple[int, int]]) -> None:
        """See `BasePolicy.reset`."""
        super().reset(seeds)
        self.asked = AskedVisits(len(seeds), self.moves_take_time)

    def decide(self, view: View) -> np.ndarray:
        """See `VisitingDispatcher.decide`."""
        self.asked.begin(view)
        chosen = np.zeros(len(VARIANTS), dtype=np.int64)
        while len(copies := np.flatnonzero(self.asked.current >= 0)):
            rows = self.asked.rows[copies]
            head = np.concatenate([np.ones((len(rows), 1)), rows[:, :HEAD]], axis=1)
            servers = rows[:, HEAD:].reshape(len(rows), -1, WIDTH)
            cost = np.einsum("bnf,bf->bn", servers, np.einsum("bt,btf->bf", head, self.weights[copies]))
            cost[servers[:, :, 0] <= 0.0] = np.inf  # servers that the task does not fit
            chosen[copies] = cost.argmin(axis=1)
            self.asked.choose(chosen)
        return self.asked.answers()


for revealed in (False, True):
    logs = []
    for k in range(PROBLEMS):
        env = draw_kind(Family(), np.random.default_rng([DRAWN, k]), "basic", revealed)
        played = outcomes_of(Changed(), len(VARIANTS), Instance(env, FIRST + k))
        logs.append(np.log([played.response_s, played.tail_s]))
    found = 100 * (np.array(logs) - np.array(logs)[:, :, :1])
    mean, half = found.mean(axis=0), 2.0 * found.std(axis=0, ddof=1) / np.sqrt(len(logs))
    print("revealed:" if revealed else "whole:")
    for v in np.argsort(mean[0]):
        response, p95 = (f"{mean[m, v]:+.2f} ± {half[m, v]:.2f}" for m in (0, 1))
        print(f"  {list(VARIANTS)[v]:32} response {response}, p95 {p95}", flush=True)
