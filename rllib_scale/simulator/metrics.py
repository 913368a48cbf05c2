"""The metrics of an episode; their names and units stand in `rllib_scale/results/tables.py`."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from rllib_scale.compiled import compiled
from rllib_scale.simulator.state import AWAY, TO_END


@partial(compiled, allocates=True)
def summarise(b, state, problem, tier, num_tiers):  # type: ignore[no-untyped-def]
    """Metrics of environment b as it stands; in the order of `Engine.metrics`. `tier` (N,), -1 in an empty slot."""
    env, servers = state.env[b], problem.servers
    count = 0
    responses = np.empty(env.num_started)
    for i in range(env.num_started):
        if state.log[b, i].finish <= env.clock and state.log[b, i].outcome == TO_END:
            responses[count] = state.log[b, i].finish - state.log[b, i].arrival
            count += 1
    responses = np.sort(responses[:count])
    censored = env.response_sum
    for s in range(state.slots.shape[1]):
        slot = state.slots[b, s]
        if slot.workflow >= 0 and s != env.pending:
            censored += (slot.num_tasks - slot.num_completed) * (env.clock - slot.arrival)
    tier_busy, tier_count, tier_away = np.zeros(num_tiers), np.zeros(num_tiers), np.zeros(num_tiers)
    energy = 0.0
    for j in range(len(servers)):
        if tier[j] < 0:
            continue
        busy = state.busy[b, j]
        if state.finish[b, j] < np.inf:
            busy -= state.finish[b, j] - env.clock
        host = state.hosts[b, servers[j].host]
        away = host.away + (env.clock - host.left if host.status == AWAY else 0.0)
        tier_busy[tier[j]] += busy
        tier_count[tier[j]] += 1
        tier_away[tier[j]] += away
        energy += servers[j].idle_power * (env.clock - away) + (servers[j].busy_power - servers[j].idle_power) * busy
    floats = np.empty(7 + num_tiers)
    floats[0] = env.response_sum / env.completed if env.completed > 0 else math.nan
    floats[1] = _percentile(responses, 0.5)
    floats[2] = _percentile(responses, 0.95)
    floats[3] = censored / env.arrived if env.arrived > 0 else math.nan
    floats[4] = env.makespan_sum / env.workflows_completed if env.workflows_completed > 0 else math.nan
    floats[5] = energy
    there = tier_count.sum() * env.clock - tier_away.sum()
    floats[6] = tier_busy.sum() / there if there > 0 else 0.0
    for t in range(num_tiers):
        there = tier_count[t] * env.clock - tier_away[t]
        floats[7 + t] = tier_busy[t] / there if there > 0 else 0.0
    return floats


@compiled
def _percentile(values, q):  # type: ignore[no-untyped-def]
    """Linear interpolation between order statistics of a sorted array; NaN of none."""
    if len(values) == 0:
        return math.nan
    position = q * (len(values) - 1)
    low = int(position)
    high = min(low + 1, len(values) - 1)
    return values[low] + (position - low) * (values[high] - values[low])
