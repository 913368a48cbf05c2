"""The columns of the tables of results, with their types and units: the only schema, which every reader follows."""

from __future__ import annotations

LIVE = " (live)"
"""Behind a scheduler's name, where a row is of a run on a real cluster; without it, of its simulation."""
OBSERVABILITY = "observability"
UNIT_COLUMNS: dict[str, tuple[str, str]] = {
    "scheduler": ("string", "id in `schedulers`: digest of a training as trained, of a rule, or of a given policy"),
    "problem": ("string", "id in `problems`: digest of the world that is played; rows that share it can be compared"),
    "protocol": ("string", "id in `protocols`: digest of how a policy is asked: decisions, mask, observation, reward"),
    "decision": ("string", "argmax or sample"),
    "eval_seed": ("Int64", "seed of the evaluation workloads"),
}
"""Ids shared by the rows of an evaluation. The dimension tables hold the settings behind each."""
OBSERVABILITY_COLUMN: dict[str, tuple[str, str]] = {
    OBSERVABILITY: (
        "string",
        "what the scheduler observes: clairvoyant (whole workflows, exact demands), estimates and/or revealed; "
        "or these of the waiting tasks only",
    ),
}
"""It follows from the scheduler and the problem, and is not part of a row's identity."""
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
        "within twice their critical path, of those with that much time to the end",
    ),
    "moved_share": ("float64", "attempts on another server than that of their first predecessor, of those with one"),
}
"""Metrics of whole workflows, `rllib_scale.evaluation.workflows`; missing in the reproduction's rows."""
REPLICA_COLUMNS: dict[str, tuple[str, str]] = {
    "response_p99_s": ("float64", "99th percentile of the response of completed calls [s]"),
    "response_censored_p99_s": ("float64", "99th percentile of the time of calls, open ones by their age [s]"),
    "jct_censored_s": ("float64", "mean time of turns: the integral of turns in progress over turns begun [s]"),
    "jct_censored_p99_s": ("float64", "99th percentile of the time of turns, those in progress by their age [s]"),
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
    "working_set": (
        "float64",
        "unique tokens of active agents over the memory for contexts, mean over time; none of those that a gate pauses",
    ),
    "held_calls": ("Int64", "calls that were held back, those still held included"),
    "longest_hold_s": ("float64", "longest time that a call was held, those still held included [s]"),
}
"""With `service: replica`, of the time after the warm-up; missing otherwise. In other columns tasks are calls there,
workflows are turns, response_censored_s is the integral of open calls over completed ones (Little's law), and slo_share
is the share of calls within both objectives, of those that are answered and those, held or running, that miss one
already."""
BOUND_COLUMNS: dict[str, tuple[str, str]] = {
    "bound_critical_path_s": ("float64", "lower bound on response_censored_s of any scheduler: no queues [s]"),
    "bound_capacity_s": ("float64", "the best lower bound on it, with the servers' capacity [s]; NaN if none is known"),
}
"""Lower bounds that no scheduler can beat, `rllib_scale.bounds.lower_bounds`."""
HASH_COLUMN: dict[str, tuple[str, str]] = {
    "unit": ("string", "hash of everything that decides the rows of its evaluation"),
}
"""An evaluation is finished if its hash is in a row of `episodes`."""
EPISODE_COLUMNS: dict[str, tuple[str, str]] = {
    **UNIT_COLUMNS,
    "episode": ("Int64", "(eval_seed, episode) fixes the workload, the same for every scheduler"),
    **(OBSERVABILITY_COLUMN | METRIC_COLUMNS | WORKFLOW_COLUMNS | REPLICA_COLUMNS | BOUND_COLUMNS | HASH_COLUMN),
}
EPISODE_KEY = (*UNIT_COLUMNS, "episode")
"""It identifies a row."""
PAIR_KEY = ("problem", "eval_seed", "episode")
"""Columns that are equal in rows of two schedulers that played the same episode."""

FEATURE_COLUMNS: dict[str, tuple[str, str]] = {
    **UNIT_COLUMNS,
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
    **HASH_COLUMN,
}
FEATURE_KEY = (*UNIT_COLUMNS,)

TRAINING_COLUMNS: dict[str, tuple[str, str]] = {
    "scheduler": UNIT_COLUMNS["scheduler"],
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
    "step_size": ("float64", "searches: deviation of the candidates after the generation, CMA-ES: sigma"),
}

TRAININGS_COLUMNS: dict[str, tuple[str, str]] = {
    "name": ("string", "METHOD-sSEED-ID of the plan: the training's folder in policies/ and trials/"),
    "scheduler": ("string", "id of the training as trained, which its rows have"),
    "epochs": ("Int64", "epochs that it ran"),
    "stopped": ("boolean", "whether a scheduler ended it early, for good"),
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
"""Settings that Optuna suggested, and those that PBT changed during trainings."""

VERSION_COLUMN = {"version": ("string", "of the program that wrote the row; another may have other settings")}
SCHEDULER_COLUMNS: dict[str, tuple[str, str]] = {
    "scheduler": ("string", "id: digest of the settings"),
    "kind": ("string", "training, rule or policy (a given one, which the sweep has not trained)"),
    "name": ("string", "a rule with its parameters, or the label of a policy; empty for a training"),
    **VERSION_COLUMN,
    "settings": ("string", "all settings as JSON, defaults included; a training's as trained"),
}
PROBLEM_COLUMNS: dict[str, tuple[str, str]] = {
    "problem": ("string", "id: digest of the settings"),
    "scenario": ("string", "named problem from which it was made, as asked for"),
    "family": ("string", "kind of random problems of which it is one; missing for another"),
    "number": ("Int64", "its number in the family; missing for another"),
    **VERSION_COLUMN,
    "settings": (
        "string",
        "all settings of the world as JSON, defaults included; a tier's `ratio` says how another number of servers is "
        "shared out, and is no part of the id",
    ),
}
PROTOCOL_COLUMNS: dict[str, tuple[str, str]] = {
    "protocol": ("string", "id: digest of the settings"),
    **VERSION_COLUMN,
    "settings": ("string", "all settings of how a policy is asked as JSON, defaults included"),
}
