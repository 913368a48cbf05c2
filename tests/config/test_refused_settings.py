"""What a sweep's YAML must not say: `rllib-scale validate` refuses it by one line that names the key."""

from pathlib import Path

import pytest

from refused import refused

ROWS = """
trainin: {} | unknown key 'trainin'; did you mean 'training'?
srr: {lambda_1: 1} | unknown key 'srr.lambda_1'; did you mean 'lambda_decorrelation'?
srr: {lambda2: 1} | unknown key 'srr.lambda2'; did you mean 'lambda_kl'?
training: {lr: 1} | unknown key 'training.lr'; did you mean 'learning_rate'?
ppo: {clip_param: 1} | unknown key 'ppo.clip_param'; did you mean 'clip'?
epochs: 3 | unknown key 'epochs'; did you mean 'training.epochs'?
num_seeds: 3 | unknown key 'num_seeds'; did you mean 'seeds'?
env: {offered_load: 1} | unknown key 'env.offered_load'; did you mean 'workload.offered_load'?
training: {lerning_rate: 3e-4} | 'training.lerning_rate' | did you mean 'learning_rate'?
training: {learning_rate: fast} | training.learning_rate | valid number | 'fast'
training: {clip: 0.1} | training.clip: stands in the section of an algorithm; valid: ppo.clip
ppo: {minibatch_size: 100} | ppo.steps_per_epoch 1024 | minibatch_size 100
ppo: {steps_per_epoch: 1024000000000} | ppo.steps_per_epoch | equal to 10000000 (got 1024000000000)
ppo: {reference_kl_coefficient: 0.1} | reference_kl_coefficient | give initial_policy
training: {problems: {offered_load: [2, 1]}} | training.problems | low 2.0 | high 1.0
ppo: {time_unit_s: 1} | unknown key 'ppo.time_unit_s'
ppo: {initial_policy: nowhere} | ppo.initial_policy | no file
training: {learning_rate: 1e30} | training.learning_rate | equal to 1 (got 1e+30)
imitation: {expert: null} | imitation.expert | scale with imitation.expert
imitation: {expert: fastest-idle, episodes: 1000000000} | imitation.episodes | equal to 100000 (got 1000000000)
ppo: {passes: '1_0'} | ppo.passes: must be a number, not '1_0'
network: {num_heads: 3} | num_heads 3
network: {skip: adaptive} | network.skip adaptive | scale-any (got paper) | none, linear
network: {mlp_hidden: [on]} | network.mlp_hidden: entry 0 must be a number, not true (in YAML also on, yes)
resources: {cpus: 1.0e-17} | resources.cpus | greater than or equal to 0.01
srr: {lambda_kl: off} | srr.lambda_kl: must be a number, not false (in YAML also off, no)
stop: {epochs: 1, env_steps: 2} | stop | epochs or env_steps, not both
seeds: [] | seeds: must have at least 1 entry
methods: [scael] | unknown method 'scael'; did you mean 'scale'? valid: scale
methods: [], evaluation: {heuristics: []} | methods | evaluation.heuristics | nothing to run
methods: [ppo], training: {problems: {servers: [8]}} | training.problems.servers | ppo
methods: [ppo], network: {encoder: my.nets:Mean} | my.nets
methods: [ppo], network: {num_heads: 2} | network.num_heads | as scale
methods: [dqn], dqn: {buffer_size: 1000000000000} | dqn.buffer_size | equal to 10000000
methods: [dqn], imitation: {expert: fastest-idle} | imitation.expert | dqn
methods: [deepsets], network: {skip: linear} | network.skip
methods: [crossattn], imitation: {expert: heft} | imitation.expert heft: plans ahead | fastest-idle
methods: [crossattn], imitation: {expert: reserve} | imitation.expert reserve | env.decision.on_busy reserve
methods: [context-price] | mask none | valid: mask feasible
methods: [context-price], scenario: day, training: {problems: {servers: [4, 8]}}, cma: {instances: 1} | cma.instances 1
methods: [deeprm], scenario: steady-0.7, deeprm: {queue: 1024} | deeprm.queue | equal to 256
scenario: papr | unknown scenario 'papr'; did you mean 'paper'?
env: {cluster: paper-61} | env.cluster | unknown cluster 'paper-61'; did you mean 'paper-16'?
env: {cluster: {tiers: [{name: a, count: 1, compute_gflops: 1, memory_gb: 0.5}]}} | memory_gb.high is 80.0 | 0.5
env: {cluster: {tiers: [{name: a, count: 1, compute_gflops: 1, memory_gb: 9, idle_power_w: 2}]}} | busy_power_w 0.0
env: {cluster: {tiers: [{name: a, count: 1, compute_gflops: 1e308, memory_gb: 99}]}} | compute_gflops | 1e+308
env: {episode: {arrivals_until_s: 100}} | episode.arrivals_until_s 100 | horizon_s 12
env: {workload: {offered_load: 0.5, arrival_rate_per_server: 0.1}} | offered_load 0.5 and arrival_rate_per_server 0.1
env: {cluster: {tiers: [&t {name: a, count: 4, compute_gflops: 1, memory_gb: 99}, *t]}} | tier names must differ
env: {cluster: {changes: {tiers: [larg]}}} | changes.tiers: unknown tier 'larg'; did you mean 'large'?
env: {cluster: {changes: {schedule: [{time_s: 1, event: fail}]}}} | changes.schedule.0 | servers, by number, or share
env: {cluster: {changes: {schedule: [{time_s: 1, event: fail, servers: [1], share: 0.5}]}}} | servers | or share
env: {cluster: {changes: {schedule: [{time_s: 1, event: fail, servers: [1], tiers: [large]}]}}} | tiers go with share
env: {cluster: {changes: {schedule: [{time_s: 1, event: fail, servers: [16]}]}}} | no server 16; valid: 0 to 15
env: {workload: {min_tasks: 9}} | max_tasks 8 | min_tasks 9
env: {workload: {compute_gflop: {mean: 1, std: 0, low: 3, high: 2}}} | env.workload.compute_gflop: high 2.0 | low 3.0
env: {workload: {compute_gflop: {mean: 1, std: 1, low: 4.1, bound: truncate}}} | low 4.1 | 3 standard deviations
env: {workload: {compute_gflop: {mean: 9, std: 1, low: 1, high: 5.9, bound: truncate}}} | high 5.9
env: {workload: {rate_wave: {period_s: 1, amplitude: 0.5, levels: [1]}}} | amplitude and levels
env: {workload: {rate_wave: {period_s: 1, levels: [0, 0]}}} | levels [0.0, 0.0]
env: {workload: {trace: nowhere.json}} | env.workload.trace: no file
env: {workload: {fitted: coding}} | env.workload.fitted: no file | valid: coding-agents, or a file
env: {workload: {fitted: coding-agents, generator: 'json:loads'}} | generator
env: {decision: {offer: startable}} | offer startable: goes with on_busy reserve
evaluation: {scales: [0]} | evaluation.scales | 1 | 0
evaluation: {scenarios: [stedy-0.7]} | did you mean 'steady-0.7'
evaluation: {masks: [feasable]} | evaluation.masks.0 | did you mean 'feasible'
evaluation: {heuristics: [fastest-idel]} | unknown scheduler 'fastest-idel'; did you mean 'fastest-idle'? | zoo:NAME
evaluation: {heuristics: ['reserve:wating=2']} | unknown key 'wating'; did you mean 'waiting'
evaluation: {heuristics: ['reserve:waiting=0']} | waiting: input should be greater than or equal to 1e-15 (got '0')
evaluation: {heuristics: ['reserve:waiting']} | 'waiting' must be key=value, each key once; keys: order, waiting
evaluation: {heuristics: ['reserve:waiting=2,waiting=3']} | 'waiting=3' must be key=value, each key once
evaluation: {heuristics: ['heft:waiting=2']} | heft has no parameters
evaluation: {heuristics: ['prefix-affinity:imbalance=nan']} | imbalance: input should be greater than or equal to 0
custom_scenarios: {paper: {}} | custom_scenarios.paper: is a shipped scenario
grid: {srr.lambda_kl: []} | grid.srr.lambda_kl: must have at least 1 entry
grid: {lambda: [1]} | grid.lambda: must be or begin with | srr
grid: {srr.lambda_kl: [much]} | srr.lambda_kl | 'much'
search: {scheduler: pbt} | `space`, which is empty
search: {scheduler: asha}, training: {epochs: 40} | search.asha.grace_steps 102400 | 40960 | valid: 1 to 39936
search: {scheduler: pbt, space: {srr.lambda_kl: {uniform: [0, 1]}}}, stop: {epochs: 9} | interval_steps 51200 | 9216
search: {scheduler: asha}, methods: [scale, ppo] | give one method, not 2
search: {scheduler: asha}, methods: [context-price], scenario: steady-0.7 | context-price has no env steps
search: {samples: 2}, methods: [] | search: there is nothing to search for
grid: {ppo.clip: [0.1, 0.2]}, search: {samples: 5001, space: {ppo.gamma: {uniform: [0, 1]}}} | 10,002
search: {scheduler: pbt, space: {ppo.gamma: {uniform: [0, 1]}}}, grid: {ppo.clip: [0.1]} | leave out grid
search: {space: {srr.lambda_kl: {loguniform: [0.1, 0.1]}}} | low must be below high
search: {space: {srr.lambda_kl: {}}} | give one of uniform
search: {space: {lambda: {uniform: [0, 1]}}} | search.space.lambda | srr
search: {space: {srr.lambda_kl: {uniform: [0, 1]}}}, grid: {srr.lambda_kl: [1]} | search.space.srr.lambda_kl
"""
UNUSED = """
methods: [scale-any], grid: {env.reward: [{name: paper}]} | grid.env.reward.name paper: scale-any has tasks-in-system
methods: [scale-any], env: {reward: {energy_weight: 1.0}} | env.reward.energy_weight 1.0: scale-any has 0.0 in its place
methods: [scale-gate], scenario: agents-replicas, grid: {env.episode.mask: [none]} | scale-gate has feasible
methods: [scale], env: {decision: {on_busy: reserve}}, evaluation: {scenarios: [paper]} | scale-s42- | mask feasible
methods: [scale], grid: {dqn.learning_rate: [1e-3]} | grid.dqn.learning_rate | a method that does, as dqn
methods: [scale], imitation: {episodes: 5} | imitation.episodes | scale with imitation.expert
methods: [scale, decima], training: {reward: 'json:loads'} | training.reward | ppo.reward
methods: [scale, context-price], grid: {training.learning_rate: [0.1]} | training.learning_rate | ppo.learning_rate
methods: [dqn, sac], grid: {ppo.clip: [0.1]} | grid.ppo.clip | dqn, sac | as scale
methods: [dqn], search: {space: {ppo: {choice: [{passes: 2}]}}} | search.space.ppo.passes | dqn
methods: [crossattn], grid: {srr: [{lambda_kl: 0.1}]} | grid.srr.lambda_kl | scale
methods: [crossattn], search: {space: {srr.lambda_kl: {uniform: [0, 0.1]}}} | search.space.srr.lambda_kl | crossattn
methods: [crossattn], imitation: {expert: fastest-idle}, ppo: {clip: 0.1} | ppo.clip | without imitation.expert
methods: [deepsets], grid: {network.num_heads: [2]} | grid.network.num_heads | embedding_dim
methods: [deepsets], network: {encoder: 'json:loads'}, grid: {network.skip: [none]} | network.skip
methods: [context-price], env: {observation: {feature_set: rounds}} | env.observation.feature_set rounds: context-price
methods: [context-price], training: {learning_rate: 0.5} | training.learning_rate | as scale | of training its epochs
methods: [decima], stop: {env_steps: 9} | stop.env_steps | stop.epochs
methods: [decima], deeprm: {queue: 5} | deeprm.queue | a method that does, as deeprm
methods: [], grid: {ppo.gamma: [0.9]} | grid.ppo.gamma | nothing is trained
methods: [], ppo: {gamma: 0.9} | ppo.gamma | nothing is trained
"""
"""Settings that no method of the sweep uses, or in whose place it takes its own; in scenario steady-0.7."""


def check(row: str, default: str, folder: Path) -> None:
    text, *parts = row.split(" | ")
    if default.split()[0] not in text:
        text = f"{default}, {text}"
    (folder / "refused.yaml").write_text(f"{{name: refused, {text}}}")
    line = refused("validate", folder / "refused.yaml")
    assert all(part in line for part in parts), line


@pytest.mark.parametrize("row", ROWS.strip().splitlines())
def test_a_setting_that_cannot_be(row: str, tmp_path: Path) -> None:
    check(row, "methods: [scale]", tmp_path)


@pytest.mark.parametrize("row", UNUSED.strip().splitlines())
def test_a_setting_that_no_method_uses(row: str, tmp_path: Path) -> None:
    check(row, "scenario: steady-0.7", tmp_path)
