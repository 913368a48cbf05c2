"""LLM replicas: calls per second under a rule with a gate, and the cost of a call relative to one of fixed service."""

from __future__ import annotations

from benchmarks.measure import Measure, Work, interleave, rate_measure, ratio_measure
from rllib_scale.config import EnvConfig, scenario
from rllib_scale.evaluation.play import play
from rllib_scale.policies.make import make_policy

RULE, SESSIONS = "lmetric:gate=1", (20, 32)


def run(rounds: int, replicas: tuple[int, ...] = (8, 64, 512), end_s: float = 1800.0) -> list[Measure]:
    """All measures.

    Args:
        rounds: rounds of each comparison.
        replicas: R, each with SESSIONS live drawn sessions in a closed loop.
        end_s: length of an episode.
    """
    measures = []
    for count in replicas:
        for live in SESSIONS:
            history = interleave({"ours": _played(RULE, _fleet(count, end_s, live))}, rounds)
            name = f"calls a core, {RULE}, {count} replicas, {live} sessions each"
            measures.append(rate_measure(history, "ours", name, "calls/s"))
    fixed = scenario("coding-agents-0.7").at_scale(16)
    fixed = fixed.model_copy(update={"episode": fixed.episode.model_copy(update={"horizon_s": 20 * end_s})})
    works = {
        "fixed": _played("fastest-idle", fixed),
        "replica": _played("least-outstanding", _fleet(16, end_s, SESSIONS[0])),
    }
    name = "a call on replicas / one of fixed service, both N=16"
    measures.append(ratio_measure(interleave(works, rounds), "replica", "fixed", f"{name} (speed)", 1 / 3))
    return measures


def _fleet(count: int, end_s: float, live: int) -> EnvConfig:
    env = scenario("agents-replicas").at_scale(count)
    service = env.service.model_copy(update={"sessions": live, "warm_up_s": end_s / 10})
    episode = env.episode.model_copy(update={"horizon_s": end_s})
    return env.model_copy(update={"service": service, "episode": episode})


def _played(rule: str, env: EnvConfig) -> Work:
    policy = make_policy(rule, env)

    def work() -> float:
        return float(play(policy, env, 0, [0]).metrics()["completed"])

    return work
