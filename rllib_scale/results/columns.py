"""The columns of the tables of results, with their types and units: the only schema, which every reader follows."""

from __future__ import annotations

IDENTITY_COLUMNS: dict[str, tuple[str, str]] = {
    "sweep": ("string", "name of the sweep"),
    "trial_id": ("string", "hash of the training as trained; of a rule its name, of a given policy with its digest"),
    "format": ("Int64", "format of the hashes; rows of different formats are not of the same program"),
    "method": ("string", "method or heuristic"),
    "kind": ("string", "learned or heuristic"),
    "train_seed": ("Int64", "seed of the training; missing for a heuristic"),
    "lambda_decorrelation": ("float64", "in force; 0 without SRR, NaN for a heuristic"),
    "lambda_kl": ("float64", "in force; 0 without SRR, NaN for a heuristic"),
    "overrides": ("string", "other settings that differ from the method's without the grid, 'path=value; ...'"),
    "train_servers": ("Int64", "servers trained at; missing for a heuristic"),
    "epochs": ("Int64", "training epochs; missing for a heuristic"),
    "env_steps": ("Int64", "decisions trained on; missing for a heuristic and methods trained on whole episodes"),
}
EVALUATION_COLUMNS: dict[str, tuple[str, str]] = {
    "scenario": ("string", "named problem"),
    "changes": ("string", "what differs from it in the world that is played, 'path=value; ...'; may be empty"),
    "problem": ("string", "hash of the world that is played: rows that share it can be compared"),
    "test_servers": ("Int64", "servers at evaluation"),
    "mask": ("string", "none or feasible, as evaluated; a method that decides in rounds of its own replaces it"),
    "protocol": ("string", "hash of how the policy was asked: decisions, mask, observation, reward"),
    "asked": ("string", "in words what differs from the scenario's protocol, 'path=value; ...'; may be empty"),
    "decision": ("string", "argmax or sample"),
    "eval_seed": ("Int64", "seed of the evaluation workloads"),
    "episode": ("Int64", "(eval_seed, episode) fixes the workload, the same for every method"),
}
LIVE = " (live)"
"""Behind a method's name, where a row is of a run on a real cluster; without it, of its simulation."""
OBSERVABILITY = "observability"
OBSERVABILITY_COLUMN: dict[str, tuple[str, str]] = {
    OBSERVABILITY: (
        "string",
        "what the method observes: clairvoyant (whole workflows, exact demands), estimates and/or revealed; "
        "or these of the waiting tasks only",
    ),
}
"""It follows from the method and the problem, and is not part of a row's identity."""
METRIC_COLUMNS: dict[str, tuple[str, str]] = {
    "arrived": ("Int64", "tasks that arrived until the end"),
    "completed": ("Int64", "tasks completed until the end"),
    "unfinished": ("Int64", "arrived - completed"),
    "response_mean_s": ("float64", "mean response over completed tasks [s]; NaN if none"),
    "response_median_s": ("float64", "median response over completed tasks [s]"),
    "response_p95_s": ("float64", "95th percentile of the response over completed tasks [s]"),
    "response_censored_s": ("float64", "mean over every arrived task, unfinished ones counted up to the end [s]"),
    "jct_mean_s": ("float64", "mean over completed workflows of last finish - arrival [s]; NaN if none"),
    "workflows_arrived": ("Int64", "workflows that arrived"),
    "workflows_completed": ("Int64", "workflows whose tasks all completed"),
    "episode_return": ("float64", "undiscounted sum of rewards"),
    "decisions": ("Int64", "decisions asked for"),
    "invalid_no_fit": ("Int64", "decisions for a server too small for the task, or an empty row"),
    "invalid_busy_avoidable": ("Int64", "decisions for a busy server while an idle one would have fitted"),
    "invalid_busy_unavoidable": ("Int64", "decisions for a busy server while no idle one would have fitted"),
    "duration_s": ("float64", "clock at the end [s]"),
    "energy_j": ("float64", "energy of all servers from idle and busy power [J]"),
    "utilisation": ("float64", "busy time over the time that servers were there, by rows of the action space"),
    "waits": ("Int64", "decisions by which a task waits for a busy or reserved server"),
    "passed": ("Int64", "decisions that passed over the tasks offered"),
    "failed_attempts": ("Int64", "attempts to run a task that ended as their server failed"),
    "preempted_attempts": ("Int64", "calls that a replica preempted"),
    "lost_s": ("float64", "busy time that did no lasting work: attempts that failed [s]"),
}
UTILISATION_PREFIX = "utilisation_"
"""One more float64 column per tier, e.g. utilisation_large."""
WORKFLOW_COLUMNS: dict[str, tuple[str, str]] = {
    "jct_median_s": ("float64", "median over completed workflows of last finish - arrival [s]"),
    "jct_p95_s": ("float64", "95th percentile of it [s]"),
    "jct_p99_s": ("float64", "99th percentile of it [s]"),
    "sojourn_mean_s": (
        "float64",
        "mean over completed workflows of the times from ready to finished summed over its tasks [s]: what the cluster "
        "adds to release delays",
    ),
    "sojourn_p95_s": ("float64", "95th percentile of it [s]"),
    "slo_share": (
        "float64",
        "workflows done within their deadline_s, of those that have one and are done or late; where none has one, "
        "within twice their critical path, of those with so much time to the end",
    ),
    "moved_share": ("float64", "attempts on another server than that of their first predecessor, of those with one"),
}
"""Of whole workflows, `rllib_scale.evaluation.workflows`; missing in the reproduction's rows."""
REPLICA_COLUMNS: dict[str, tuple[str, str]] = {
    "response_p99_s": ("float64", "99th percentile of the response of completed calls [s]"),
    "response_tail_s": ("float64", "mean time of the slowest hundredth of calls, those still held included [s]"),
    **{
        f"{name}_{statistic}_s": ("float64", f"{words} of {what} [s]")
        for name, what in (
            ("ttft", "the time from asking for a call to its first token"),
            ("tpot", "the time per output token after the first"),
            ("session", "the time from the first call of a whole session to its last answer"),
        )
        for statistic, words in (
            *(("mean", "mean"), ("median", "median")),
            *(("p95", "95th percentile"), ("p99", "99th percentile")),
        )
    },
    "goodput_per_s": ("float64", "calls within service.slo_ttft_s and service.slo_tpot_s [1/s]"),
    "output_per_gpu_hour": ("float64", "output tokens per GPU and hour"),
    "hit_rate": ("float64", "prompt tokens found in caches over all prompt tokens"),
    "recomputed_tokens": ("Int64", "tokens computed again: lost from caches since an earlier call, or by preemption"),
    "recomputed_share": ("float64", "the same over all prompt tokens"),
    "evicted_tokens": ("Int64", "tokens evicted from caches"),
    "working_set": ("float64", "tokens of active sessions over the memory for contexts, mean over time"),
    "held_calls": ("Int64", "calls that were held back"),
    "longest_hold_s": ("float64", "longest time that a call was held [s]"),
}
"""With `service: replica`, of the time after the warm-up; missing otherwise. In other columns tasks are calls there,
workflows are turns, response_censored_s is the integral of open calls over completed ones (Little's law), and slo_share
is the share of calls within both objectives."""
BOUND_COLUMNS: dict[str, tuple[str, str]] = {
    "bound_critical_path_s": ("float64", "lower bound on response_censored_s of any scheduler: no queues [s]"),
    "bound_capacity_s": ("float64", "the best lower bound on it, with the servers' capacity [s]; NaN if none is known"),
}
"""What no scheduler can beat, `rllib_scale.bounds.lower_bounds`."""
UNIT_COLUMN: dict[str, tuple[str, str]] = {
    "unit": ("string", "hash of everything that decides the rows of its evaluation"),
}
"""An evaluation is finished if its hash stands in a row of `episodes`."""
EPISODE_COLUMNS = (
    IDENTITY_COLUMNS | EVALUATION_COLUMNS | OBSERVABILITY_COLUMN | METRIC_COLUMNS | WORKFLOW_COLUMNS | REPLICA_COLUMNS
) | (BOUND_COLUMNS | UNIT_COLUMN)
EPISODE_KEY = ("trial_id", "problem", "protocol", "decision", "eval_seed", "episode")
"""It identifies a row."""
PAIR_KEY = ("problem", "eval_seed", "episode")
"""What the rows of two methods share that played the same."""

FEATURE_COLUMNS: dict[str, tuple[str, str]] = {
    **IDENTITY_COLUMNS,
    **{name: column for name, column in EVALUATION_COLUMNS.items() if name != "episode"},
    "feature_rows": ("Int64", "decisions in the sample of f, spread evenly over the evaluation episodes"),
    "feature_dim": ("Int64", "d, the width of f"),
    "feature_covariance": ("float64", "mean |off-diagonal covariance| of f"),
    "feature_correlation": ("float64", "mean |off-diagonal correlation| of f; 0 with a feature that does not vary"),
    "feature_kl": ("float64", "KL from N(0, I), L_d: 1/(2d) sum_k (mu_k^2 + var_k - ln var_k - 1), unbiased variances"),
    "feature_effective_rank": ("float64", "exp of the entropy of the normalised eigenvalues of the covariance of f"),
    "feature_variance": ("float64", "mean variance of f"),
    "drift_wasserstein": ("float64", "from the training scale: mean over d of the 1-D distance; NaN with a fixed N"),
    "drift_wasserstein_relative": ("float64", "the same in standard deviations of f at the training scale"),
    "drift_mmd2": ("float64", "from the training scale: unbiased squared MMD, RBF kernel; may be below 0"),
    "drift_training_wasserstein": ("float64", "from the problem of the training, in standard deviations of f there"),
    "drift_training_mmd2": ("float64", "from the problem of the training: unbiased squared MMD"),
    **UNIT_COLUMN,
}
FEATURE_KEY = tuple(name for name in EPISODE_KEY if name != "episode")

TRAINING_COLUMNS: dict[str, tuple[str, str]] = {
    **{name: IDENTITY_COLUMNS[name] for name in IDENTITY_COLUMNS if name not in ("kind", "epochs", "env_steps")},
    "epoch": ("Int64", "1 is the first"),
    "env_steps": ("Int64", "decisions so far"),
    "wall_s": ("float64", "training time so far [s]"),
    "env_steps_per_s": ("float64", "decisions per second of this epoch, sampling and update"),
    "episode_return": ("float64", "mean over the episodes that ended in this epoch; NaN if none"),
    "completed": ("float64", "completed tasks, mean over the same episodes"),
    "response_mean_s": ("float64", "mean response [s], over the same episodes"),
    "policy_loss": ("float64", "clipped surrogate loss; SAC: mean of temperature x log-probability - Q"),
    "value_loss": ("float64", "unweighted mean squared error of the critic; DQN and SAC: Huber loss of Q"),
    "entropy": ("float64", "of the policy [nat]"),
    "kl": ("float64", "mean KL from the policy that sampled to the policy after the update [nat]"),
    "explained_variance": ("float64", "of the value targets by the critic"),
    "srr_decorrelation": ("float64", "L_c, unweighted"),
    "srr_kl": ("float64", "L_d, unweighted"),
    "srr_ramp": ("float64", "0 to 1"),
    "srr_lambda_decorrelation": ("float64", "ramp x lambda_decorrelation, as it reached the loss"),
    "srr_lambda_kl": ("float64", "ramp x lambda_kl, as it reached the loss"),
    "feature_covariance": ("float64", "mean |off-diagonal covariance| of f"),
    "feature_correlation": ("float64", "mean |off-diagonal correlation| of f"),
    "feature_effective_rank": ("float64", "exp of the entropy of the normalised eigenvalues of the covariance of f"),
    "gradient_norm": ("float64", "global norm before clipping"),
    "learning_rate": ("float64", "of this epoch"),
    "q_mean": ("float64", "DQN and SAC: mean Q-value of the decisions drawn from the replay buffer"),
    "epsilon": ("float64", "DQN: share of random decisions, mean over the updates of this epoch"),
    "temperature": ("float64", "SAC: weight of the entropy"),
    "reference_kl": ("float64", "mean KL from the updated policy to the initial one it is held to, unweighted [nat]"),
    "imitation_loss": ("float64", "imitation: mean cross-entropy to the expert's choice [nat]"),
    "agreement": ("float64", "imitation: share of decisions of held-out episodes that are the expert's"),
    "objective": (
        "float64",
        "context-price: mean over the candidates of the mean ln(objective [s]); decima, deeprm: of response",
    ),
    "objective_validation": (
        "float64",
        "mean ln(policy so far / fastest-idle) on the validation episodes, where it was tried",
    ),
    "step_size": ("float64", "CMA-ES: sigma after the generation"),
}

TRAININGS_COLUMNS: dict[str, tuple[str, str]] = {
    "name": ("string", "METHOD-sSEED-ID of the plan: the training's folder in policies/ and trials/"),
    "trial_id": ("string", "hash of the config as trained, which names its rows"),
    "method": ("string", "method"),
    "train_seed": ("Int64", "seed of the training"),
    "epochs": ("Int64", "epochs that it ran"),
    "stopped": ("boolean", "whether a scheduler ended it early, for good"),
    "config": ("string", "config as trained, as JSON without defaults"),
    "episode_return": ("float64", "of the last epoch"),
    "response_mean_s": ("float64", "of the last epoch [s]"),
    "policy_bytes": ("Int64", "size of its policy's files"),
    "published_s": ("float64", "Unix time at which its policy was published [s]"),
}
"""One row for each finished training. Nothing else says that it is finished."""
HISTORY_COLUMNS: dict[str, tuple[str, str]] = {
    "trial": ("string", "METHOD-sSEED-ID of the plan"),
    "epoch": ("Int64", "the first epoch with the value"),
    "setting": ("string", "config path"),
    "value": ("string", "as JSON"),
    "member": ("string", "the training that had the value: another one before this was continued as its copy"),
}
"""What Optuna suggested, and what PBT changed during trainings."""
