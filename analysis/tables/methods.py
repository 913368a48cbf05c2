"""Tables 3 and 4 of the paper, whole workflows, and every setting side by side.

A table takes rows of one (scenario, mask, decision) and refuses a mixture; `side_by_side` names it in each row.
Completed and unfinished tasks always stand beside a response time: a policy that completes less shows a lower one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from rllib_scale.errors import UserError
from rllib_scale.results.tables import INFORMATION

from ..labels import OUTCOMES
from ..load import SETTING, information_of, require_one_setting, variants
from ..paper import PAPER_COMPLETED, PAPER_RESPONSE, PAPER_SERVERS, is_papers_setting, is_papers_variant
from ..stats.intervals import MIN_SEEDS
from ..stats.summaries import summarise

BOUND = "above_bound_percent"
TABLE3_METRICS = (*OUTCOMES, BOUND, "episode_return", "invalid_share")
TABLE4_METRICS = ("response_mean_s", "completed", "unfinished", "response_censored_s", BOUND)
WORKFLOW_METRICS = (
    *("completed", "makespan_mean_s", "makespan_median_s", "makespan_p95_s", "makespan_p99_s"),
    *("sojourn_mean_s", "sojourn_p95_s", "slo_share", "moved_share", "utilisation"),
)
SUMMARY_SUFFIXES = ("", "_sd", "_low", "_high")


def interval_note(seeds: int, is_rule: bool = False) -> str | None:
    """What stands beside the number of seeds: "no CI" where no interval is claimed; "rule" of one, which has none."""
    return "rule" if is_rule else "no CI" if seeds < MIN_SEEDS else None


def training_scales(episodes: pd.DataFrame) -> list[int]:
    """The scales that Table 3 can be made for: trained and evaluated at or, with heuristics alone, the smallest."""
    evaluated = {int(n) for n in episodes["test_servers"]}
    trained = {int(n) for n in episodes["train_servers"].dropna()}
    return sorted(trained & evaluated) if trained else sorted(evaluated)[:1]


def table3(episodes: pd.DataFrame, servers: int | None = None) -> pd.DataFrame:
    """Every method at the scale it was trained at [SCALE, Table 3], heuristics beside them.

    Args:
        episodes: rows of one setting.
        servers: the scale N; by default the only one that methods were trained at.

    Returns:
        One row per variant: variant; information, what it is told; seeds, and "no CI" in seeds_note where there are too
        few; TABLE3_METRICS with their _sd (over the episodes of a seed), _low and _high (over seeds); in the paper's
        setting paper_completed and paper_response_mean_s; episodes a seed; without_response: episodes, over all seeds,
        in which no task completed, if any.

    Raises:
        UserError: the frame mixes settings, or methods were trained at several scales and none is chosen.
    """
    require_one_setting(episodes)
    scales = training_scales(episodes)
    if servers is None and len(scales) > 1:
        raise UserError(f"methods were trained at N = {', '.join(map(str, scales))}; give servers, one of these")
    if servers is None:
        servers = scales[0] if scales else PAPER_SERVERS
    trained_here = episodes["train_servers"].isna() | (episodes["train_servers"] == servers).fillna(False)
    rows = episodes[(episodes["test_servers"] == servers) & trained_here.astype(bool)]
    papers = servers == PAPER_SERVERS and is_papers_setting(episodes)
    records = [_record(rows[rows["variant"] == name], TABLE3_METRICS, papers, True) for name in variants(rows)]
    return _frame(records, _columns(("variant", INFORMATION), TABLE3_METRICS, papers, True))


def table4(episodes: pd.DataFrame) -> pd.DataFrame:
    """Response time against the number of servers, without training anew [SCALE, Table 4].

    Args:
        episodes: rows of one setting.

    Returns:
        One row per (test_servers, variant), by test_servers: trained is "here", "zero-shot" (at another scale) or
        "rule"; information and the rest as in table3, with the TABLE4_METRICS and, in the paper's setting,
        paper_response_mean_s.

    Raises:
        UserError: the frame mixes settings.
    """
    require_one_setting(episodes)
    return _by_scale(episodes, TABLE4_METRICS, is_papers_setting(episodes))


def workflows_table(episodes: pd.DataFrame) -> pd.DataFrame:
    """What becomes of whole workflows, of agents' turns, say: the tail, an objective, and how much is moved.

    Args:
        episodes: rows of one setting.

    Returns:
        As table4, with the WORKFLOW_METRICS; no rows where the results are of a version that did not measure them.

    Raises:
        UserError: the frame mixes settings.
    """
    require_one_setting(episodes)
    return _by_scale(episodes[episodes["makespan_p95_s"].notna()], WORKFLOW_METRICS, False)


def _by_scale(episodes: pd.DataFrame, metrics: Sequence[str], papers: bool) -> pd.DataFrame:
    records = []
    for servers in sorted(episodes["test_servers"].unique()):
        at_scale = episodes[episodes["test_servers"] == servers]
        for name in variants(at_scale):
            rows = at_scale[at_scale["variant"] == name]
            records.append(
                {"test_servers": int(servers), "trained": _trained(rows)} | _record(rows, metrics, papers, False)
            )
    return _frame(records, _columns(("test_servers", "variant", "trained", INFORMATION), metrics, papers, False))


def side_by_side(tables: Mapping[tuple[str, str, str], pd.DataFrame]) -> pd.DataFrame:
    """Tables of `table4` one below the other.

    Returns:
        One row per (scenario, mask, decision, test_servers, variant), the settings in their order; then as in `table4`.
    """
    if not tables:
        return pd.DataFrame(columns=list(SETTING))
    named = [
        table.assign(**dict(zip(SETTING, setting, strict=True)))[[*SETTING, *table.columns]]
        for setting, table in tables.items()
    ]
    columns = max((list(table.columns) for table in named), key=len)
    return _frame([dict(row) for table in named for row in table.to_dict("records")], columns)


def _record(rows: pd.DataFrame, metrics: Sequence[str], papers: bool, with_completed: bool) -> dict[str, Any]:
    summaries = summarise(rows, metrics)
    completed = summaries["completed"]
    record: dict[str, Any] = {
        "variant": rows["variant"].iloc[0],
        INFORMATION: information_of(rows),
        "seeds": completed.seeds,
        "seeds_note": interval_note(completed.seeds, _is_rule(rows)),
        "episodes": count_episodes(rows),
        "without_response": summaries["response_mean_s"].missing or None if "response_mean_s" in summaries else None,
    }
    for metric, summary in summaries.items():
        record[metric] = summary.mean
        record |= {f"{metric}{suffix}": getattr(summary, suffix[1:]) for suffix in SUMMARY_SUFFIXES[1:]}
    if papers and is_papers_variant(rows.iloc[0]):
        method, servers = str(rows["method"].iloc[0]), int(rows["test_servers"].iloc[0])
        if with_completed and method in PAPER_COMPLETED:
            record["paper_completed"], record["paper_completed_sd"] = PAPER_COMPLETED[method]
        if (method, servers) in PAPER_RESPONSE:
            record["paper_response_mean_s"], record["paper_response_mean_s_sd"] = PAPER_RESPONSE[method, servers]
    return record


def _frame(records: list[dict[Any, Any]], columns: list[str]) -> pd.DataFrame:
    return pd.DataFrame(records, columns=columns).astype({"without_response": "Int64"})  # None would make it a float


def _columns(lead: Sequence[str], metrics: Sequence[str], papers: bool, with_completed: bool) -> list[str]:
    columns = [*lead, "seeds", "seeds_note"]
    columns += [f"{metric}{suffix}" for metric in metrics for suffix in SUMMARY_SUFFIXES]
    if papers:
        of_paper = (["paper_completed"] if with_completed else []) + ["paper_response_mean_s"]
        columns += [f"{name}{suffix}" for name in of_paper for suffix in ("", "_sd")]
    return [*columns, "episodes", "without_response"]


def _is_rule(rows: pd.DataFrame) -> bool:
    return bool((rows["kind"] == "heuristic").any())


def count_episodes(rows: pd.DataFrame) -> int:
    """Different evaluation episodes."""
    return len(rows[["eval_seed", "episode"]].drop_duplicates())


def _trained(rows: pd.DataFrame) -> str:
    """Where a variant's seeds were trained: at the same scale, at another, or not at all."""
    scales = rows["train_servers"].dropna()
    if scales.empty:
        return "rule"
    return "here" if (scales == rows["test_servers"].iloc[0]).all() else "zero-shot"
