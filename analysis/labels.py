"""One table of labels, for tables, figures, report and dashboard."""

from __future__ import annotations

import textwrap

LABELS = {
    "variant": "method",
    "observability": "observes",
    "test_servers": "N",
    "episodes": "episodes",
    "completed": "completed tasks",
    "unfinished": "unfinished tasks",
    "response_mean_s": "response of completed tasks (s)",
    "response_censored_s": "mean response of all tasks that arrived (s)",
    "response_p95_s": "response, 95th percentile (s)",
    "above_bound_percent": "above bound (%)",
    "response_censored_p99_s": "calls, 99 % (s)",
    "jct_mean_s": "mean JCT (s)",
    "jct_censored_s": "mean time of turns (s)",
    "jct_censored_p99_s": "turns, 99 % (s)",
    "jct_median_s": "median JCT (s)",
    "jct_p95_s": "95th percentile of JCT (s)",
    "jct_p99_s": "99th percentile of JCT (s)",
    "sojourn_mean_s": "on the cluster (s)",
    "sojourn_p95_s": "on the cluster, 95th percentile (s)",
    "slo_share": "within objective",
    "moved_share": "moved",
    "failed_attempts": "failed attempts",
    "utilisation": "utilisation",
    "ttft_mean_s": "time to first token (s)",
    "ttft_p95_s": "time to first token, 95 % (s)",
    "tpot_mean_s": "time per output token (s)",
    "session_mean_s": "mean JCT of a session (s)",
    "goodput_per_s": "goodput (calls/s)",
    "output_per_gpu_hour": "output tokens per GPU hour",
    "hit_rate": "hit rate",
    "recomputed_tokens": "recomputed tokens",
    "evicted_tokens": "evicted tokens",
    "working_set": "working set over memory",
    "held_calls": "held calls",
    "longest_hold_s": "longest hold (s)",
    "episode_return": "return",
    "invalid_share": "invalid share",
    "paper_completed": "paper: completed",
    "paper_response_mean_s": "paper: response of completed tasks (s)",
    "without_response": "without response",
    "feature_covariance": "off-diagonal covariance",
    "feature_correlation": "off-diagonal correlation",
    "feature_kl": "KL from N(0, I)",
    "feature_effective_rank": "effective rank",
    "feature_variance": "variance",
    "paper_feature_covariance": "paper: covariance",
    "paper_feature_kl": "paper: KL",
    "drift_wasserstein": "drift: Wasserstein",
    "drift_wasserstein_relative": "drift: Wasserstein (sd)",
    "drift_mmd2": "drift: MMD²",
    "drift_training_wasserstein": "drift from training: Wasserstein (sd)",
    "drift_training_mmd2": "drift from training: MMD²",
    "lost_percent": "lost, points",
    "drift": "drift",
    "between_policies": "between policies",
    "between_problems": "between problems",
    "invalid_no_fit": "invalid: too small",
    "invalid_busy_avoidable": "invalid: busy, another free",
    "invalid_busy_unavoidable": "invalid: busy, none free",
}
LABELS |= {"mean_rank": "mean rank", "worst_ratio": "worst ratio to the best", "worst_in": "in"}
LABELS["gap_closed_percent"] = "gap to the bound closed, %"
LABELS |= {"problems": "problems", "worst_against_base": "worst ratio", "worse_percent": "worse than it, % of problems"}
LABELS |= {
    "completed_per_server": "completed per server",
    "srr_decorrelation": "L_c (decorrelation)",
    "srr_kl": "L_d (KL)",
    "entropy": "entropy (nat)",
    "policy_loss": "policy loss",
    "value_loss": "value loss",
    "kl": "KL of an update (nat)",
    "explained_variance": "explained variance",
    "objective": "objective in training (ln s)",
    "objective_validation": "against fastest-idle in validation (ln)",
    "env_steps_per_s": "env steps per second",
    "env_steps": "env steps",
    "wall_s": "training time (s)",
    "epoch": "epoch",
}
CURVES = (
    *("episode_return", "completed", "response_mean_s", "srr_decorrelation", "srr_kl", "feature_correlation"),
    *("entropy", "policy_loss", "value_loss", "kl", "explained_variance", "objective", "objective_validation"),
    "env_steps_per_s",
)
"""Curves of a training, in the order in which they are offered."""
OUTCOMES = ("completed", "unfinished", "response_mean_s", "response_censored_s")
LOWER_IS_BETTER = frozenset(
    {"unfinished", "response_mean_s", "response_censored_s", "above_bound_percent", "mean_rank", "worst_ratio"}
    | {"worst_against_base", "worse_percent"}
    | {"jct_mean_s", "jct_median_s", "jct_p95_s", "jct_p99_s", "sojourn_mean_s", "sojourn_p95_s", "invalid_share"}
    | {"response_censored_p99_s", "jct_censored_s", "jct_censored_p99_s"}
    | {"ttft_mean_s", "ttft_p95_s", "tpot_mean_s", "session_mean_s", "recomputed_tokens", "longest_hold_s"}
    | {"invalid_no_fit", "invalid_busy_avoidable", "invalid_busy_unavoidable", "objective", "objective_validation"}
)
HIGHER_IS_BETTER = frozenset(
    {"completed", "completed_per_server", "episode_return", "slo_share", "gap_closed_percent"}
    | {"goodput_per_s", "output_per_gpu_hour", "hit_rate"}
)
AGAINST_BASE = "against_base_"
"""Prefix of the columns with the ratio of a time to that of the base rule, in per cent."""
AXIS_WIDTH = 26
"""Letters in a line of an axis' label."""
TIER_PREFIX = "tier_"
"""Prefix of the columns with a tier's utilisation."""


def label(column: str) -> str:
    """The heading of a column, or the label of an axis."""
    if column.startswith(TIER_PREFIX):
        return f"utilisation: {column.removeprefix(TIER_PREFIX)}"
    if column.startswith(AGAINST_BASE):
        return f"{noun(column.removeprefix(AGAINST_BASE))}, %"
    return LABELS.get(column, column)


def noun(column: str) -> str:
    """The label of a time in a sentence, without its unit."""
    return label(column).removesuffix(" (s)")


def direction(column: str) -> str:
    """Which values of a column are better, in words; empty where neither is."""
    if column in LOWER_IS_BETTER or column.startswith(AGAINST_BASE):
        return "lower is better"
    return "higher is better" if column in HIGHER_IS_BETTER else ""


def axis_label(column: str) -> str:
    """The label of an axis in short lines: the heading of the column, and below it which values are better."""
    better = [f"({direction(column)})"] if direction(column) else []
    return "\n".join([*textwrap.wrap(label(column), AXIS_WIDTH), *better])
