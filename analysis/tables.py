"""Tables 3 and 4 of the paper and paired differences, as functions of the rows of one setting.

Every table takes rows of one (scenario, mask, decision) and refuses a mixture. Completed and unfinished tasks always
stand beside a response time: a policy that completes less shows a lower response over what it completes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from analysis.load import METHOD_ORDER, PAPER_SETTING, require_one_setting, settings, variants
from analysis.stats import MIN_SEEDS, paired_differences, summarise
from rllib_scale.errors import UserError

OUTCOMES = ("completed", "unfinished", "response_mean_s", "response_censored_s")
TABLE3_METRICS = (*OUTCOMES, "episode_return", "invalid_share")
TABLE4_METRICS = ("response_mean_s", "completed", "unfinished", "response_censored_s")
BASELINES = ("crossattn", "ppo", "fastest-idle")
"""What learned methods are compared with: the same networks without SRR, and the strongest simple rule."""

PAPER_EPOCHS = 1000
PAPER_SERVERS = 16
PAPER_LAMBDAS = {"scale": (0.01, 0.001), "ppo-srr": (0.01, 0.001)}
PAPER_COMPLETED = {  # [SCALE, Table 3], N = 16: mean and standard deviation over 30 episodes
    "scale": (8.37, 2.15),
    "crossattn": (8.10, 1.85),
    "sac": (5.93, 1.41),
    "ppo": (4.03, 0.71),
    "ppo-srr": (4.30, 1.10),
    "dqn": (4.00, 0.68),
}
PAPER_RESPONSE = {  # [SCALE, Tables 3 and 4], seconds: mean and standard deviation over 30 episodes
    ("scale", 16): (4.58, 0.68),
    ("crossattn", 16): (4.65, 0.67),
    ("sac", 16): (4.50, 0.29),
    ("ppo", 16): (4.37, 0.73),
    ("ppo-srr", 16): (4.45, 0.73),
    ("dqn", 16): (4.88, 0.49),
    ("scale", 32): (5.57, 0.65),
    ("crossattn", 32): (5.70, 0.52),
    ("scale", 48): (6.22, 0.70),
    ("crossattn", 48): (6.83, 0.63),
}


def interval_note(seeds: int) -> str | None:
    """What stands beside the number of seeds: "no CI" where no interval is claimed, "rule" where there are none."""
    return "rule" if seeds == 0 else "no CI" if seeds < MIN_SEEDS else None


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
        One row per variant: variant; seeds, and "no CI" in seeds_note where there are too few; TABLE3_METRICS with
        their _sd (over the episodes of a seed), _low and _high (over seeds); in the paper's setting paper_completed
        and paper_response_mean_s; episodes a seed; without_response:
        episodes, over all seeds, in which no task completed, if any.

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
    papers = servers == PAPER_SERVERS and _is_papers_setting(episodes)
    records = [_record(rows[rows["variant"] == name], TABLE3_METRICS, papers, True) for name in variants(rows)]
    return pd.DataFrame(records, columns=_columns(("variant",), TABLE3_METRICS, papers, True))


def table4(episodes: pd.DataFrame) -> pd.DataFrame:
    """Response time against the number of servers, without training anew [SCALE, Table 4].

    Args:
        episodes: rows of one setting.

    Returns:
        One row per (test_servers, variant), by test_servers: trained is "here", "zero-shot" (at another scale) or
        "rule"; then as in table3, with the TABLE4_METRICS and, in the paper's setting, paper_response_mean_s.

    Raises:
        UserError: the frame mixes settings.
    """
    require_one_setting(episodes)
    papers = _is_papers_setting(episodes)
    records = []
    for servers in sorted(episodes["test_servers"].unique()):
        at_scale = episodes[episodes["test_servers"] == servers]
        for name in variants(at_scale):
            rows = at_scale[at_scale["variant"] == name]
            records.append(
                {"test_servers": int(servers), "trained": _trained(rows)} | _record(rows, TABLE4_METRICS, papers, False)
            )
    return pd.DataFrame(
        records, columns=_columns(("test_servers", "variant", "trained"), TABLE4_METRICS, papers, False)
    )


def default_pairs(episodes: pd.DataFrame) -> list[tuple[str, str]]:
    """Every learned variant against every variant of the BASELINES, each pair once."""
    methods = dict(zip(episodes["variant"], episodes["method"], strict=True))
    names = variants(episodes)
    learned = set(episodes.loc[episodes["kind"] == "learned", "variant"])
    baselines = [name for method in BASELINES for name in names if methods[name] == method]
    pairs: list[tuple[str, str]] = []
    for second in baselines:
        pairs += [(first, second) for first in names if first in learned and first != second]
    return [pair for position, pair in enumerate(pairs) if pair[::-1] not in pairs[:position]]


def paired_table(episodes: pd.DataFrame, pairs: Iterable[tuple[str, str]] | None = None) -> pd.DataFrame:
    """Differences first - second on identical episodes, at every scale at which both were evaluated.

    Args:
        episodes: rows of one setting.
        pairs: (first, second) variants; by default `default_pairs`.

    Returns:
        One row per (first, second, test_servers): seeds and seeds_note; OUTCOMES as differences with their _low,
        _high and _verdict: lower, higher, undecided or no interval (k seeds); episodes a seed.

    Raises:
        UserError: the frame mixes settings, a variant is unknown, or a row has no partner (it is named).
    """
    require_one_setting(episodes)
    records = []
    for pair in default_pairs(episodes) if pairs is None else pairs:
        first, second = (episodes[episodes["variant"] == name] for name in pair)
        for name, rows in zip(pair, (first, second), strict=True):
            if rows.empty:
                raise UserError(f"unknown variant {name!r}; valid: {', '.join(variants(episodes))}")
        for servers in sorted(set(first["test_servers"]) & set(second["test_servers"])):
            sides = [rows[rows["test_servers"] == servers] for rows in (first, second)]
            record: dict[str, Any] = {"first": pair[0], "second": pair[1], "test_servers": int(servers)}
            differences = paired_differences(sides[0], sides[1], OUTCOMES)
            seeds = differences["completed"].seeds
            record |= {"seeds": seeds, "seeds_note": interval_note(seeds)}
            for metric, difference in differences.items():
                record |= {metric: difference.mean, f"{metric}_verdict": difference.verdict}
                record |= {f"{metric}_low": difference.low, f"{metric}_high": difference.high}
            records.append(record | {"episodes": _episodes(sides[0])})
    statistics = [f"{metric}{suffix}" for metric in OUTCOMES for suffix in ("", "_low", "_high", "_verdict")]
    columns = ["first", "second", "test_servers", "seeds", "seeds_note", *statistics, "episodes"]
    return pd.DataFrame(records, columns=columns)


def _record(rows: pd.DataFrame, metrics: Sequence[str], papers: bool, with_completed: bool) -> dict[str, Any]:
    summaries = summarise(rows, metrics)
    completed = summaries["completed"]
    record: dict[str, Any] = {
        "variant": rows["variant"].iloc[0],
        "seeds": completed.seeds,
        "seeds_note": interval_note(completed.seeds),
        "episodes": _episodes(rows),
        "without_response": summaries["response_mean_s"].missing or None,
    }
    for metric, summary in summaries.items():
        record |= {metric: summary.mean, f"{metric}_sd": summary.sd}
        record |= {f"{metric}_low": summary.low, f"{metric}_high": summary.high}
    if papers and _is_papers_variant(rows.iloc[0]):
        method, servers = str(rows["method"].iloc[0]), int(rows["test_servers"].iloc[0])
        if with_completed and method in PAPER_COMPLETED:
            record["paper_completed"], record["paper_completed_sd"] = PAPER_COMPLETED[method]
        if (method, servers) in PAPER_RESPONSE:
            record["paper_response_mean_s"], record["paper_response_mean_s_sd"] = PAPER_RESPONSE[method, servers]
    return record


def _columns(lead: Sequence[str], metrics: Sequence[str], papers: bool, with_completed: bool) -> list[str]:
    columns = [*lead, "seeds", "seeds_note"]
    columns += [f"{metric}{suffix}" for metric in metrics for suffix in ("", "_sd", "_low", "_high")]
    if papers:
        of_paper = (["paper_completed"] if with_completed else []) + ["paper_response_mean_s"]
        columns += [f"{name}{suffix}" for name in of_paper for suffix in ("", "_sd")]
    return [*columns, "episodes", "without_response"]


def _episodes(rows: pd.DataFrame) -> int:
    """Different evaluation episodes."""
    return len(rows[["eval_seed", "episode"]].drop_duplicates())


def _trained(rows: pd.DataFrame) -> str:
    """Where a variant's seeds were trained: at the same scale, at another, or not at all."""
    scales = rows["train_servers"].dropna()
    if scales.empty:
        return "rule"
    return "here" if (scales == rows["test_servers"].iloc[0]).all() else "zero-shot"


def _is_papers_setting(episodes: pd.DataFrame) -> bool:
    return settings(episodes) == [PAPER_SETTING]


def _is_papers_variant(row: pd.Series) -> bool:
    """Whether the paper states numbers for this variant: its method at its lambdas, trained at N = 16."""
    if row["method"] not in METHOD_ORDER or row["train_servers"] != PAPER_SERVERS or row["overrides"]:
        return False
    lambdas = PAPER_LAMBDAS.get(row["method"], (0.0, 0.0))
    return (row["lambda_decorrelation"], row["lambda_kl"]) == lambdas
