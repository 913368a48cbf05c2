"""Tables 3 and 4 of the paper, whole workflows, decisions and utilisation, and every setting side by side.

A table takes rows of one (scenario, mask, decision); `side_by_side` names it in each row. Completed and unfinished
tasks stand beside every response time: a policy that completes fewer tasks shows a lower one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from rllib_scale.errors import UserError
from rllib_scale.results.columns import OBSERVABILITY, UTILISATION_PREFIX

from ..figures.chart import varies
from ..labels import TIER_PREFIX
from ..paper import PAPER_COMPLETED, PAPER_RESPONSE, PAPER_SERVERS, is_papers_setting, papers_methods
from ..rows import INVALID, SETTING, Setting
from .summary import observability_by, summary_table

BOUND = "above_bound_percent"
HEADLINE = ("response_censored_s", "jct_mean_s")
"""Further columns of a first table, beside the one that it is ordered by."""
TABLE3_METRICS = (*HEADLINE, "completed", "unfinished", "response_mean_s", BOUND, "episode_return", "invalid_share")
TABLE4_METRICS = (*HEADLINE, "response_mean_s", "completed", "unfinished", BOUND)
WORKFLOW_METRICS = (
    *("completed", "jct_mean_s", "jct_median_s", "jct_p95_s", "jct_p99_s"),
    *("sojourn_mean_s", "sojourn_p95_s", "slo_share", "moved_share", "utilisation"),
)
REPLICA_METRICS = (
    *("response_censored_p99_s", "jct_censored_s", "jct_censored_p99_s", "longest_hold_s", "held_calls"),
    *("jct_mean_s", "jct_p99_s", "session_mean_s", "ttft_mean_s", "ttft_p95_s", "tpot_mean_s", "slo_share"),
    *("goodput_per_s", "output_per_gpu_hour", "hit_rate", "recomputed_tokens", "evicted_tokens", "working_set"),
)
BEHAVIOUR_HOW = (
    "means over training seeds of the mean over a seed's episodes; [low, high] is their 95 % interval. Decisions, all "
    "and invalid, are per episode; an invalid one costs a clock step. Utilisation: share of the time servers are busy."
)
Stated = Mapping[tuple[str, int], tuple[float, float]]
"""Method and number of servers -> mean and standard deviation that the paper states."""


def ranking(table: pd.DataFrame, endpoint: str) -> str:
    """The metric that ranks the rows: the primary endpoint, or the mean response of all tasks if all have the same."""
    return endpoint if varies(table, endpoint) else HEADLINE[0]


def training_scales(episodes: pd.DataFrame) -> list[int]:
    """The scales of Table 3: those of training and evaluation or, with rules alone, the smallest."""
    evaluated = {int(n) for n in episodes["test_servers"].unique()}
    trained = {int(n) for n in episodes["train_servers"].dropna().unique()}
    return sorted(trained & evaluated) if trained else sorted(evaluated)[:1]


def table3(episodes: pd.DataFrame, servers: int | None = None) -> pd.DataFrame:
    """Every method at the scale it was trained at [SCALE, Table 3], heuristics beside them.

    Args:
        episodes: rows of one setting.
        servers: the scale N; by default the only one that methods were trained at.

    Returns:
        A `summary_table` of the TABLE3_METRICS by variant, with observability; in the paper's setting
        paper_completed and paper_response_mean_s with their _sd; without_response: episodes, over all seeds,
        in which no task completed, if any.

    Raises:
        UserError: methods were trained at several scales and none is chosen.
    """
    scales = training_scales(episodes)
    if servers is None and len(scales) > 1:
        raise UserError(f"methods were trained at N = {', '.join(map(str, scales))}; give servers, one of these")
    if servers is None:
        servers = scales[0] if scales else PAPER_SERVERS
    trained_here = episodes["train_servers"].isna() | (episodes["train_servers"] == servers).fillna(False)
    rows = episodes[(episodes["test_servers"] == servers) & trained_here.astype(bool)]
    table = _described(rows, ("variant",), TABLE3_METRICS)
    if servers == PAPER_SERVERS and is_papers_setting(episodes):
        table = _beside_the_papers(table, rows, {"completed": PAPER_COMPLETED, "response_mean_s": PAPER_RESPONSE})
    return table


def table4(episodes: pd.DataFrame) -> pd.DataFrame:
    """Response time against the number of servers, without retraining [SCALE, Table 4].

    Args:
        episodes: rows of one setting.

    Returns:
        A `summary_table` of the TABLE4_METRICS by test_servers and variant, with trained: "here", "zero-shot" (at
        another scale) or "fixed" (nothing to train); observability, without_response and paper_response_mean_s as in
        table3.
    """
    table = _by_scale(episodes, TABLE4_METRICS)
    if is_papers_setting(episodes):
        table = _beside_the_papers(table, episodes, {"response_mean_s": PAPER_RESPONSE})
    return table


def workflows_table(episodes: pd.DataFrame) -> pd.DataFrame:
    """Whole workflows, such as turns of agents: mean and tail of their times, objective met, tasks moved.

    Args:
        episodes: rows of one setting.

    Returns:
        As table4, with the WORKFLOW_METRICS; no rows if the results lack them, or servers are replicas.
    """
    return _by_scale(episodes[episodes["jct_p95_s"].notna() & episodes["hit_rate"].isna()], WORKFLOW_METRICS)


def replicas_table(episodes: pd.DataFrame) -> pd.DataFrame:
    """Metrics of LLM replicas: times of tokens, caches, held calls.

    Args:
        episodes: rows of one setting.

    Returns:
        As table4, with the REPLICA_METRICS; no rows if servers are no replicas.
    """
    return _by_scale(episodes[episodes["hit_rate"].notna()], REPLICA_METRICS)


def behaviour_table(episodes: pd.DataFrame, servers: int) -> pd.DataFrame:
    """Decisions, the invalid ones by cause, and utilisation at one number of servers, as a `summary_table` by variant.

    Args:
        episodes: rows of one setting.
        servers: the scale N.

    Returns:
        decisions, the INVALID ones, utilisation and tier_NAME for each tier, with their _low and _high.
    """
    rows = episodes[episodes["test_servers"] == servers]
    measured = [str(name) for name in rows.columns[rows.notna().any()] if str(name).startswith(UTILISATION_PREFIX)]
    of_tiers = {name: TIER_PREFIX + name.removeprefix(UTILISATION_PREFIX) for name in measured}
    rows = rows.rename(columns=of_tiers)
    metrics = ("decisions", *INVALID, "utilisation", *of_tiers.values())
    return summary_table(rows, ("variant",), metrics, ("", "_low", "_high"))


def _by_scale(episodes: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    by = ["test_servers", "variant"]
    table = _described(episodes, by, metrics)
    rows = episodes.dropna(subset=["train_servers"])
    here = (rows["train_servers"] == rows["test_servers"]).groupby([rows[name] for name in by]).all()
    trained = _aligned(table, by, here.map({True: "here", False: "zero-shot"}))
    table.insert(2, "trained", trained.fillna("fixed"))
    return table


def side_by_side(tables: Mapping[Setting, pd.DataFrame]) -> pd.DataFrame:
    """Tables of `table4` one below the other.

    Returns:
        One row per (*SETTING, test_servers, variant), the settings in their order; then as in `table4`.
    """
    if not tables:
        return pd.DataFrame(columns=list(SETTING))
    named = [
        table.assign(**dict(zip(SETTING, setting, strict=True)))[[*SETTING, *table.columns]]
        for setting, table in tables.items()
    ]
    columns = max((list(table.columns) for table in named), key=len)
    joined = pd.concat([table.astype(object) for table in named], ignore_index=True)[columns].infer_objects()
    return joined.astype({"without_response": "Int64"})


def _described(rows: pd.DataFrame, by: Sequence[str], metrics: Sequence[str]) -> pd.DataFrame:
    """A `summary_table` with what each variant observes, and its episodes in which no task completed."""
    table = summary_table(rows, by, metrics)
    table.insert(len(by), OBSERVABILITY, _aligned(table, by, observability_by(rows, by)).fillna(""))
    without = rows["response_mean_s"].isna().groupby([rows[name] for name in by]).sum()
    return table.assign(without_response=_aligned(table, by, without[without > 0]).astype("Int64"))


def _aligned(table: pd.DataFrame, by: Sequence[str], values: pd.Series) -> pd.Series:
    """Values of groups in the order of a table's rows; missing where a group has none."""
    return table[[*by]].merge(values.rename("value").reset_index(), on=[*by], how="left")["value"]


def _beside_the_papers(table: pd.DataFrame, rows: pd.DataFrame, stated: Mapping[str, Stated]) -> pd.DataFrame:
    """The table with the paper's mean and standard deviation of some metrics, before the number of episodes."""
    methods = papers_methods(rows)
    scales = table["test_servers"] if "test_servers" in table else [PAPER_SERVERS] * len(table)
    keys = [(methods.get(name, ""), int(servers)) for name, servers in zip(table["variant"], scales, strict=True)]
    for metric, of in stated.items():
        pairs = [of.get(key, (math.nan, math.nan)) for key in keys]
        for number, end in enumerate(("", "_sd")):
            place = list(table.columns).index("episodes")
            table.insert(place, f"paper_{metric}{end}", [pair[number] for pair in pairs])
    return table
