"""What of RLlib's private names this package uses: the list to check on another version of Ray.

`tests/rl/test_private.py` compares it with the installed Ray and with the code of this package. Overridden methods that
RLlib documents for this purpose, as `_forward_train`, are not listed.
"""

from __future__ import annotations

PRIVATE: dict[str, tuple[str, ...]] = {
    "ray.rllib.algorithms.algorithm_config.AlgorithmConfig": (
        # Settings that have no public name: see `rllib_scale.rl.settings`.
        "_env_to_module_connector",
        "_learner_connector",
        "_module_to_env_connector",
        "_torch_grad_scaler_class",
        "_torch_lr_scheduler_classes",
    ),
    "ray.rllib.env.single_agent_env_runner.SingleAgentEnvRunner": (
        "_callbacks",
        "_increase_sampled_metrics",
        "_log_env_steps",
        "_log_episode_metrics",
        "_metrics_num_env_steps_sampled",
        "_needs_initial_reset",
        "_sample",
        "_seed",
        "_weights_seq_no",
    ),
    "ray.rllib.algorithms.ppo.torch.ppo_torch_learner.PPOTorchLearner": (
        "_learner_connector",
        "_weights_seq_no",
    ),
    "ray.rllib.algorithms.sac.torch.sac_torch_learner.SACTorchLearner": ("_temp_losses",),
    "ray.rllib.algorithms.dqn.torch.default_dqn_torch_rl_module.DefaultDQNTorchRLModule": ("_qf_forward_helper",),
    "ray.rllib.algorithms.sac.torch.default_sac_torch_rl_module.DefaultSACTorchRLModule": ("_forward_train_discrete",),
}
"""By class."""
