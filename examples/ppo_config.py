"""SCALE trained by RLlib's PPOConfig: module, learner and environment runner fit into any configuration.

    python examples/ppo_config.py

The trial decides problem, network, regulariser, the end of the learning rate's cosine, and how advantages are
standardised. RLlib decides whatever it has a setting for; what is left out here has RLlib's default, not the paper's.
The policy is written to results/my-ppo.
"""

import math
from pathlib import Path

import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from rllib_scale.config import TrialConfig
from rllib_scale.policies.policy import save_policy
from rllib_scale.rl.env_runner import ArrayEnvRunner
from rllib_scale.rl.environment import TRAINING_ENV, register_training_env
from rllib_scale.rl.ppo.ppo_learner import SchedulingLearner
from rllib_scale.rl.ppo.ppo_module import SchedulingModule

torch.set_num_threads(1)  # the networks are small: more threads of a process wait for each other
trial = TrialConfig.of("scale", algorithm={"epochs": 2})
plain = {"trial": trial.model_dump(mode="json")}
register_training_env()
algorithm = (
    PPOConfig()
    .environment(TRAINING_ENV, env_config=plain)
    .env_runners(
        env_runner_cls=ArrayEnvRunner,
        num_env_runners=0,
        num_envs_per_env_runner=4,
        gym_env_vectorize_mode="vector_entry_point",
    )
    .rl_module(rl_module_spec=RLModuleSpec(module_class=SchedulingModule, model_config=plain))
    .learners(learner_class=SchedulingLearner, learner_config_dict=plain)
    .training(
        train_batch_size_per_learner=512,
        minibatch_size=128,
        num_epochs=2,
        lr=3e-4,
        lambda_=0.95,
        clip_param=0.2,
        vf_clip_param=math.inf,
        use_kl_loss=False,
        grad_clip=0.5,
    )
    .debugging(seed=1)
    .build_algo()
)
for _ in range(trial.algorithm.epochs):
    result = algorithm.train()
    print(f"SRR's KL term: {result['learners']['default_policy']['srr_kl']:.3f}")
save_policy(Path("results/my-ppo"), algorithm.get_module().network, trial, epochs=trial.algorithm.epochs)
algorithm.stop()
