"""The workload and cluster on which one scheduler does worst against another, by CMA-ES.

    python examples/adversary.py fastest-idle reserve

Arguments are names as `rllib-scale evaluate` takes them: rules, `zoo:NAME`, policy folders. The worst instance found is
written to worst.json, and the problem to play it in to worst.yaml.

Source of the idea: J. Coleman, B. Krishnamachari, PISA: an adversarial approach to comparing task graph scheduling
algorithms, arXiv 2403.07120, 2024, which anneals task graphs and networks.
"""

import argparse
import math
from pathlib import Path

import cma
import numpy as np
import yaml

from rllib_scale.config import EnvConfig, scenario
from rllib_scale.evaluation.play import play, played_to_its_end
from rllib_scale.policies.make import make_policy
from rllib_scale.workloads.generators import TOPOLOGIES, generate
from rllib_scale.workloads.model import Workload

BASE = scenario("steady-0.7")
LARGEST_GB = max(tier.memory_gb for tier in BASE.cluster.tiers)
RANGES = {
    "offered_load": (0.3, 1.1),
    "min_tasks": (1, 6),
    "more_tasks": (0, 10),  # max_tasks less min_tasks
    "compute_gflop": (2.0, 20.0),  # mean; the standard deviation is up to half of it
    "compute_spread": (0.0, 0.5),
    "memory": (0.05, 0.6),  # mean, of the largest server's; standard deviation likewise
    "memory_spread": (0.0, 0.4),
    "output_gb": (0.01, 5.0),
    "bandwidth_gb_s": (0.5, 20.0),
    "topology": (0, len(TOPOLOGIES) - 1),
    **{f"servers of {tier.name}": (1, 8) for tier in BASE.cluster.tiers},
}
"""What is searched, and between what limits. All else is of BASE."""


def problem_at(point: np.ndarray) -> EnvConfig:
    """The problem at a point of the unit cube, one coordinate for each of RANGES; workflows arrive for 30 s."""
    at = {name: low + x * (high - low) for (name, (low, high)), x in zip(RANGES.items(), point.tolist(), strict=True)}
    compute, output, least = at["compute_gflop"], at["output_gb"], round(at["min_tasks"])
    memory, memory_std = LARGEST_GB * at["memory"], LARGEST_GB * at["memory_spread"]
    data = BASE.model_dump(mode="json")
    data["cluster"]["bandwidth_gb_s"] = at["bandwidth_gb_s"]
    for tier in data["cluster"]["tiers"]:
        tier["count"] = round(at[f"servers of {tier['name']}"])
    data["workload"] |= {
        "offered_load": at["offered_load"],
        "min_tasks": least,
        "max_tasks": least + round(at["more_tasks"]),
        "compute_gflop": {"mean": compute, "std": compute * at["compute_spread"], "low": 1.0, "bound": "truncate"},
        "memory_gb": {"mean": memory, "std": memory_std, "low": min(1.0, LARGEST_GB), "high": LARGEST_GB},
        "output_gb": {"mean": output, "std": 0.4 * output, "low": 0.01},
        "topology": TOPOLOGIES[round(at["topology"])],
    }
    data["episode"]["arrivals_until_s"] = 30.0
    return EnvConfig.model_validate(data)


def duel(names: tuple[str, str], point: np.ndarray, seed: int) -> tuple[list[float], EnvConfig, Workload]:
    """Mean response [s] of both schedulers on the workload drawn at a point; nan of one that does not finish it."""
    env = problem_at(point)
    workload = generate(env, seed, 0)
    env = played_to_its_end(env, workload)
    responses = []
    for name in names:
        metrics = play(make_policy(name, env), env, 1000, [0], workload=workload).metrics()
        done = metrics["workflows_completed"] == workload.num_workflows > 0
        responses.append(float(metrics["response_mean_s"]) if done else math.nan)
    return responses, env, workload


def main() -> None:
    """Search, and print every new worst instance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", help="the scheduler that is to do badly")
    parser.add_argument("other", help="the one that it is compared with")
    parser.add_argument("--evaluations", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1, help="of the first search, and of its workloads")
    parser.add_argument("--output", type=Path, default=Path("worst.json"))
    options = parser.parse_args()
    names, best, left, seed = (options.first, options.other), 0.0, options.evaluations, options.seed
    while left > 0:  # a search that has converged is followed by one with the next seed
        limits = {"bounds": [0, 1], "maxfevals": min(left, 500), "popsize": 16, "seed": seed, "verbose": -9}
        search = cma.CMAEvolutionStrategy(np.full(len(RANGES), 0.5), 0.3, limits)
        while not search.stop():
            points, losses = search.ask(), []
            for point in points:
                (first, other), env, workload = duel(names, point, seed)
                ratio = first / other if first / other > 0 else 0.0  # 0 where either did not finish
                losses.append(-ratio)
                if ratio > best:
                    best = ratio
                    workload.save(options.output)
                    settings = yaml.safe_dump(env.model_dump(mode="json"), sort_keys=False)
                    options.output.with_suffix(".yaml").write_text(settings, encoding="utf-8")
                    print(f"{names[0]} {first:.2f} s, {names[1]} {other:.2f} s: ratio {ratio:.3f}", flush=True)
            search.tell(points, losses)
        left, seed = left - search.countevals, seed + 1


if __name__ == "__main__":
    main()
