"""The private names of Ray that this program uses: the list to check on another version of Ray.

`tests/clusters/test_private.py` compares it with the installed Ray and with the code of this program. Not listed are
methods that RLlib documents to be overridden, as `_forward_train`.
"""

from __future__ import annotations

IMPORTED = (
    "ray._common.deprecation",
    "ray._private.node",
    "ray._private.services.canonicalize_bootstrap_address",
    "ray._private.worker",
    "ray._raylet.Config",
    "ray._raylet.GcsClient",
    "ray.air._internal.usage",
    "ray.train._internal.storage",
    "ray.tune.trainable.metadata._TrainingRunMetadata",
)
"""Private modules and classes of Ray that the package uses, by path."""
PRIVATE: dict[str, dict[str, tuple[str, ...]]] = {
    "rl": {
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
            "_no_metrics_reduce",
            "_weights_seq_no",
        ),
        "ray.rllib.algorithms.sac.torch.sac_torch_learner.SACTorchLearner": ("_temp_losses",),
        "ray.rllib.algorithms.dqn.torch.default_dqn_torch_rl_module.DefaultDQNTorchRLModule": ("_qf_forward_helper",),
        "ray.rllib.algorithms.sac.torch.default_sac_torch_rl_module.DefaultSACTorchRLModule": (
            "_forward_train_discrete",
        ),
    },
    "sweeps/tune_loop.py": {
        "ray.train._internal.storage": ("_FilesystemSyncer", "_pyarrow_fs_copy_files"),
        "ray.train._internal.storage._FilesystemSyncer": ("_sync_up_command",),
        "ray.tune.execution.tune_controller.TuneController": ("_create_checkpoint_manager",),
        "ray.tune.execution.experiment_state._ExperimentCheckpointManager": ("_sync_every_n_trial_checkpoints",),
    },
    "live/serve.py": {
        "ray.serve.request_router.RequestRouter": (
            "_deployment_id",
            "_event_loop",
            "_probe_queue_lens",
            "_remove_pending_request_from_indices",
            "_replicas_list",
        ),
    },
}
"""By the code that uses them, then by class or module."""
