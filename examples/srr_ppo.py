"""SCALE in RLlib's own parts: PPO with SRR as one module, one learner and one loss.

    python examples/srr_ppo.py 2

trains the paper's cross-attention network for two epochs of 1024 decisions at 16 servers [SCALE, sec. 4] and writes it
to results/my-ppo, which `rllib-scale evaluate results/my-ppo` plays. After two epochs most of its answers are still
invalid; the paper trains 1000. `rllib-scale sweep` trains the same several times as fast.
"""

import math
import sys
from pathlib import Path

import gymnasium
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.tune.registry import register_env

import rllib_scale.envs  # noqa: F401 (registers the environment)
from rllib_scale.config import TrialConfig
from rllib_scale.networks.build import build_network
from rllib_scale.networks.mlp import Critic
from rllib_scale.networks.srr import ramp, srr
from rllib_scale.policies.policy import save_policy


class Module(TorchRLModule, ValueFunctionAPI):
    """A task and N servers to N logits, and through their feature f (B, d) to a value."""

    def setup(self):
        """Build network and critic."""
        trial = TrialConfig.model_validate(self.model_config["trial"])
        self.network = build_network(trial)
        self.critic = Critic(self.network.feature_dim, trial.algorithm.critic_hidden)

    def _forward(self, batch, **kwargs):
        features, logits = self.network(batch[Columns.OBS])
        return {Columns.EMBEDDINGS: features, Columns.ACTION_DIST_INPUTS: logits}

    def compute_values(self, batch, embeddings=None):
        """Values (B,)."""
        return self.critic(self.network(batch[Columns.OBS])[0] if embeddings is None else embeddings)


class Learner(PPOTorchLearner):
    """RLlib's PPO with two more terms: they draw f towards independent standard normal features [SCALE, sec. 4.3]."""

    epoch = 0

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        """PPO's loss + ramp x (lambda_1 L_c + lambda_2 L_d)."""
        loss = super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)
        weights = TrialConfig.model_validate(config.learner_config_dict["trial"]).srr
        decorrelation, kl = srr(fwd_out[Columns.EMBEDDINGS][batch[Columns.LOSS_MASK]])
        share = ramp(self.epoch, weights.ramp_start_epoch, weights.ramp_epochs)
        return loss + share * (weights.lambda_decorrelation * decorrelation + weights.lambda_kl * kl)

    def after_gradient_based_update(self, *, timesteps):
        """Count the epoch."""
        super().after_gradient_based_update(timesteps=timesteps)
        self.epoch += 1


def config_of(trial):
    """RLlib's configuration of a training."""
    ppo, plain = trial.algorithm, {"trial": trial.model_dump(mode="json")}
    register_env("scheduling", lambda _: gymnasium.make("rllib_scale/Scheduling-v0", config=trial.env))
    return (
        PPOConfig()
        .environment("scheduling")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=ppo.num_envs)
        .rl_module(rl_module_spec=RLModuleSpec(module_class=Module, model_config=plain))
        .learners(learner_class=Learner, learner_config_dict=plain)
        .training(train_batch_size_per_learner=ppo.steps_per_epoch, minibatch_size=ppo.minibatch_size)
        .training(num_epochs=ppo.passes, lr=ppo.learning_rate, gamma=ppo.gamma, lambda_=ppo.gae_lambda)
        .training(clip_param=ppo.clip, entropy_coeff=ppo.entropy_coefficient, vf_loss_coeff=ppo.value_coefficient)
        .training(vf_clip_param=math.inf, use_kl_loss=False, grad_clip=ppo.gradient_clip, grad_clip_by="global_norm")
        .debugging(seed=1)
    )


if __name__ == "__main__":
    trial = TrialConfig.of("scale", algorithm={"epochs": int(sys.argv[1]) if sys.argv[1:] else 2})
    algorithm = config_of(trial).build_algo()
    for epoch in range(trial.algorithm.epochs):
        result = algorithm.train()
        print(f"epoch {epoch}: mean return {result['env_runners'].get('episode_return_mean', math.nan):.1f}")
    save_policy(Path("results/my-ppo"), algorithm.get_module().network, trial, epochs=trial.algorithm.epochs)
    algorithm.stop()
