"""What a sweep's YAML must not say: `rllib-scale validate` refuses it by one line that names the key."""

from pathlib import Path

import pytest

from refused import refused

ROWS = """
algoritm: {} | unknown key 'algoritm'; did you mean 'algorithm'?
srr: {lambda_1: 1} | unknown key 'srr.lambda_1'; did you mean 'lambda_decorrelation'?
srr: {lambda2: 1} | unknown key 'srr.lambda2'; did you mean 'lambda_kl'?
algorithm: {lr: 1} | unknown key 'algorithm.lr'; did you mean 'learning_rate'?
algorithm: {clip_param: 1} | unknown key 'algorithm.clip_param'; did you mean 'clip'?
epochs: 3 | unknown key 'epochs'; did you mean 'algorithm.epochs'?
num_seeds: 3 | unknown key 'num_seeds'; did you mean 'seeds'?
env: {offered_load: 1} | unknown key 'env.offered_load'; did you mean 'workload.offered_load'?
algorithm: {lerning_rate: 3e-4} | 'algorithm.lerning_rate' | did you mean 'learning_rate'?
algorithm: {learning_rate: fast} | algorithm.learning_rate | valid number | 'fast'
algorithm: {gamma: null} | algorithm.gamma: null is none of its values
algorithm: 3 | algorithm: input should be a valid mapping (got 3)
algorithm: {name: imitatio} | algorithm.name: unknown algorithm 'imitatio'; did you mean 'imitation'?
algorithm: {name: dqn} | srr: dqn has no regulariser | crossattn
algorithm: {minibatch_size: 100} | algorithm.steps_per_epoch 1024 | minibatch_size 100
algorithm: {steps_per_epoch: 1024000000000} | algorithm.steps_per_epoch | equal to 10000000 (got 1024000000000)
algorithm: {reference_kl_coefficient: 0.1} | reference_kl_coefficient | give initial_policy
algorithm: {problems: {offered_load: [2, 1]}} | algorithm.problems | low 2.0 | high 1.0
algorithm: {problems: {family: {arrivals_s: [3]}}} | algorithm.problems.family.arrivals_s.1: field required
algorithm: {time_unit_s: 1} | unknown key 'algorithm.time_unit_s'
algorithm: {initial_policy: nowhere} | algorithm.initial_policy | no file
algorithm: {learning_rate: 1e30} | algorithm.learning_rate | equal to 1 (got 1e+30)
algorithm: {name: imitation, expert: null} | algorithm.expert | valid string
algorithm: {name: imitation} | algorithm.expert: field required
algorithm: {expert: fastest-idle} | algorithm.expert: scale, with algorithm ppo, has none
algorithm: {name: imitation, expert: fastest-idle, episodes: 1000000000} | algorithm.episodes | equal to 100000
algorithm: {passes: '1_0'} | algorithm.passes: must be a number, not '1_0'
network: {num_heads: 3} | num_heads 3
network: {skip: adaptive} | network.skip adaptive | scale-any | none, linear
network: {skip: lmetric} | network.skip | 'none', 'linear', 'adaptive' or 'naive' (got 'lmetric')
methods: [scale-gate] | unknown method 'scale-gate' | scale-any
algorithm: {tail_weight: 0.3} | unknown key 'algorithm.tail_weight' | valid
methods: [scale-any], scenario: agents-replicas | algorithm.copies 8: not with env.service replica; valid: null
methods: [ppo], network: {mlp_hidden: [on]} | mlp_hidden: entry 0 must be a number, not true (in YAML also on, yes)
resources: {cpus: 1.0e-17} | resources.cpus | greater than or equal to 0.01
srr: {lambda_kl: off} | srr.lambda_kl: must be a number, not false (in YAML also off, no)
stop: {epochs: 1, env_steps: 2} | stop | epochs or env_steps, not both
seeds: [] | seeds: must have at least 1 entry
methods: [scael] | unknown method 'scael'; did you mean 'scale'? valid: scale
methods: [], evaluation: {heuristics: []} | methods | evaluation.heuristics | nothing to run
methods: [ppo], algorithm: {problems: {servers: [8]}} | algorithm.problems.servers | ppo
methods: [5] | methods.0: input should be a valid string (got 5)
methods: [scale, context-price], network: {encoder: 'json:loads'} | {scale: {network: {encoder: ...}}}
methods: [{scael: {}}] | unknown method 'scael'; did you mean 'scale'?
methods: [{scale: {algoritm: {}}}] | unknown key 'methods.0.scale.algoritm'; did you mean 'algorithm'?
methods: [{scale: {algorithm: {pases: 2}}}] | unknown key 'algorithm.pases'; did you mean 'passes'?
methods: [{scale: {}, ppo: {}}] | methods.0: must have at most 1 entry (got a mapping)
methods: [{crossattn: {srr: {lambda_kl: 1}}}] | methods.crossattn.srr: crossattn has no SRR | scale
methods: [ppo], network: {encoder: my.nets:Mean} | my.nets
methods: [ppo], network: {num_heads: 2} | ppo, with network mlp, has none | {scale: {network: {num_heads: ...}}}
methods: [dqn], algorithm: {buffer_size: 1000000000000} | algorithm.buffer_size | equal to 10000000
methods: [decima], scenario: steady-0.7, network: {name: mlp} | reinforce trains none such; valid: decima, deeprm
methods: [deepsets], network: {skip: linear} | network.skip
methods: [crossattn], algorithm: {name: imitation, expert: heft} | algorithm.expert heft: plans ahead | fastest-idle
methods: [crossattn], algorithm: {name: imitation, expert: reserve} | expert reserve | env.decision.on_busy reserve
methods: [context-price] | mask none | valid: mask feasible
methods: [context-price], scenario: day, algorithm: {problems: {servers: [4, 8]}, instances: 1} | algorithm.instances 1
methods: [deeprm], scenario: steady-0.7, network: {queue: 1024} | network.queue | equal to 256
scenario: papr | unknown scenario 'papr'; did you mean 'paper'?
env: {cluster: paper-61} | env.cluster | unknown cluster 'paper-61'; did you mean 'paper-16'?
env: {cluster: {tiers: [{name: a, count: 1, compute_gflops: 1, memory_gb: 0.5}]}} | memory_gb.high is 80.0 | 0.5
env: {cluster: {tiers: [{name: a, count: 1, compute_gflops: 1, memory_gb: 9, idle_power_w: 2}]}} | busy_power_w 0.0
env: {cluster: {tiers: [{name: a, count: 1, compute_gflops: 1e308, memory_gb: 99}]}} | compute_gflops | 1e+308
env: {episode: {horizon_s: 1e12}} | refused.yaml: an episode has about 5.5e+12 tasks on 16 servers | at most 1e+07 tasks
env: {episode: {arrivals_until_s: 100}} | env: episode.arrivals_until_s 100 | horizon_s 12
env: {workload: {offered_load: 0.5, arrival_rate_per_server: 0.1}} | offered_load 0.5 and arrival_rate_per_server 0.1
env: {cluster: {tiers: [&t {name: a, count: 4, compute_gflops: 1, memory_gb: 99}, *t]}} | tier names must differ
env: {cluster: {tiers: [{}]}} | env.cluster.tiers.0.name: field required
env: {cluster: {changes: {tiers: [larg]}}} | changes.tiers: unknown tier 'larg'; did you mean 'large'?
env: {cluster: {changes: {schedule: [{time_s: 1, event: fail}]}}} | changes.schedule.0 | servers, by number, or share
env: {cluster: {changes: {schedule: [{time_s: 1, event: fail, servers: [1], share: 0.5}]}}} | servers | or share
env: {cluster: {changes: {schedule: [{time_s: 1, event: fail, servers: [1], tiers: [large]}]}}} | tiers go with share
env: {cluster: {changes: {schedule: [{time_s: 1, event: fail, servers: [16]}]}}} | no server 16; valid: 0 to 15
env: {workload: {min_tasks: 9}} | max_tasks 8 | min_tasks 9
env: {workload: {compute_gflop: {mean: 1, std: 0, low: 3, high: 2}}} | env.workload.compute_gflop: high 2.0 | low 3.0
env: {workload: {compute_gflop: {mean: 1, std: 1, low: 4.1, bound: truncate}}} | only 0.00097 of the draws | bound clip
env: {workload: {compute_gflop: {mean: 9, std: 1, low: 1, high: 5.9, bound: truncate}}} | high 5.9
env: {workload: {compute_gflop: {high: 1}}} | env.workload.compute_gflop: low 1.0 and high 1.0: only 0 of the draws
env: {workload: {rate_wave: {period_s: 1, amplitude: 0.5, levels: [1]}}} | amplitude and levels
env: {workload: {rate_wave: {period_s: 1, levels: [0, 0]}}} | levels [0.0, 0.0]
env: {workload: {trace: nowhere.json}} | env.workload.trace: no file
env: {workload: {fitted: coding}} | env.workload.fitted: no file | valid: coding-agents, or a file
env: {workload: {fitted: coding-agents, generator: 'json:loads'}} | generator
env: {decision: {offer: startable}} | offer startable: goes with on_busy reserve
scenario: agents-replicas, env: {service: {sessions: {totl: 96}}} | 'env.service.sessions.totl'; did you mean 'total'?
scenario: agents-replicas, env: {service: {sessions: 1.5}} | env.service.sessions: input should be a valid integer
scenario: agents-replicas, env: {service: {arrivals_per_s: fast}} | env.service.arrivals_per_s: input should be a valid
scenario: agents-replicas, env: {service: {start: first, arrivals_per_s: 1}} | start first: with arrivals_per_s
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
training: {epochs: 3} | training.epochs: a key of 0.3; valid: algorithm.epochs | `rllib-scale convert`
ppo: {gamma: 0.9} | ppo.gamma: a key of 0.3; valid: algorithm.gamma
imitation: | imitation: a key of 0.3; valid: algorithm
methods: [deeprm], scenario: steady-0.7, deeprm: {queue: 5} | deeprm.queue: a key of 0.3; valid: network.queue
grid: {ppo.gamma: [0.9]} | grid.ppo.gamma: a key of 0.3; valid: algorithm.gamma | `rllib-scale convert`
zip: [{training.epochs: [3]}] | zip.training.epochs: a key of 0.3; valid: algorithm.epochs
search: {space: {srr.lambda_kl: {uniform: [0, 1]}, sac.tau: {uniform: [0, 1]}}} | search.space.sac.tau: a key of 0.3
grid: {scenario.paper: [1]} | grid.scenario.paper: must be or begin with
grid: {lambda: [1]} | grid.lambda: must be or begin with | srr
grid: {srr.lambda_kl: [much]} | grid: srr.lambda_kl | 'much'
zip: {srr.lambda_kl: [much]} | zip: srr.lambda_kl | 'much'
grid: {env: [{episode: {arrivals_until_s: 100}}]} | grid: env: episode.arrivals_until_s 100 | horizon_s 12
grid: {algorithm: [3]} | grid: algorithm: must be a mapping of keys to values (got 3)
grid: {scenario: [papr]} | unknown scenario 'papr'; did you mean 'paper'?
search: {scheduler: pbt} | `space`, which is empty
search: {scheduler: asha}, algorithm: {epochs: 40} | search.asha.grace_steps 102400 | 40960 | valid: 1 to 39936
search: {scheduler: pbt, space: {srr.lambda_kl: {uniform: [0, 1]}}}, stop: {epochs: 9} | interval_steps 51200 | 9216
search: {scheduler: asha}, methods: [scale, ppo] | give one method, not 2
search: {scheduler: asha}, methods: [context-price], scenario: steady-0.7 | context-price has no env steps
search: {samples: 2}, methods: [] | search: there is nothing to search for
grid: {algorithm.clip: [0.1, 0.2]}, search: {samples: 5001, space: {algorithm.gamma: {uniform: [0, 1]}}} | 10,002
search: {scheduler: pbt, space: {algorithm.gamma: {uniform: [0, 1]}}}, grid: {algorithm.clip: [0.1]} | leave out grid
search: {space: {srr.lambda_kl: {loguniform: [0.1, 0.1]}}} | low must be below high
search: {space: {srr.lambda_kl: {}}} | give one of uniform
search: {space: {lambda: {uniform: [0, 1]}}} | search.space.lambda | srr
search: {space: {srr.lambda_kl: {uniform: [0, 1]}}}, grid: {srr.lambda_kl: [1]} | search.space.srr.lambda_kl
"""
UNUSED = """
methods: [scale-any], grid: {env.reward: [{name: paper}]} | grid.env.reward.name paper: scale-any has tasks-in-system
methods: [scale-any], env: {reward: {energy_weight: 1.0}} | env.reward.energy_weight 1.0: scale-any has 0.0 in its place
methods: [scale], env: {decision: {on_busy: reserve}}, evaluation: {scenarios: [paper]} | scale-s42- | mask feasible
methods: [scale], grid: {algorithm.batch_size: [32]} | scale, with algorithm ppo, has none | dqn
methods: [scale], algorithm: {holdout_episodes: 5} | algorithm.holdout_episodes | valid: with algorithm.name imitation
methods: [scale, decima], algorithm: {reward: 'json:loads'} | decima, with algorithm reinforce | ppo, dqn, sac
methods: [scale, context-price], grid: {algorithm.learning_rate: [0.1]} | {scale: {algorithm: {learning_rate
methods: [dqn, sac], grid: {algorithm.clip: [0.1]} | grid: algorithm.clip: dqn | with algorithm.name ppo
methods: [dqn], search: {space: {algorithm: {choice: [{passes: 2}]}}} | search.space: algorithm.passes: dqn
methods: [crossattn], grid: {srr: [{lambda_kl: 0.1}]} | grid.srr: no method of the sweep (crossattn) has SRR | scale
methods: [crossattn], search: {space: {srr.lambda_kl: {uniform: [0, 0.1]}}} | search.space.srr.lambda_kl | crossattn
methods: [crossattn], algorithm: {name: imitation, expert: fastest-idle, clip: 0.1} | algorithm.clip: crossattn
methods: [deepsets], grid: {network.num_heads: [2]} | grid: network.num_heads: deepsets | cross-attention
methods: [deepsets], network: {encoder: 'json:loads'}, grid: {network.skip: [none]} | network.skip
methods: [context-price], env: {observation: {feature_set: rounds}} | env.observation.feature_set rounds: context-price
methods: [context-price], network: {encoder: 'json:loads'} | network.encoder: context-price has no network
methods: [context-price], network: {embedding_dim: 32} | network.embedding_dim: context-price has no network
methods: [decima], stop: {env_steps: 9} | stop.env_steps | stop.epochs
methods: [decima], network: {queue: 5} | network.queue: decima | with network.name deeprm
methods: [], grid: {algorithm.gamma: [0.9]} | grid.algorithm.gamma | nothing is trained
methods: [], algorithm: {gamma: 0.9} | algorithm.gamma | nothing is trained
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
