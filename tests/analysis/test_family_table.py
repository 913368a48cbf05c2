"""Against a rule over a family of problems: literal ratios, pairing, the base, the page and the figure."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rllib_scale_analysis.dashboard.selection import options
from rllib_scale_analysis.figures import comparison
from rllib_scale_analysis.figures.style import looks
from rllib_scale_analysis.load import Results
from rllib_scale_analysis.report.sections import sections
from rllib_scale_analysis.rows import Setting
from rllib_scale_analysis.tables.family import WORSE, WORST, by_problem, family_table, log_ratios

from artificial_results import episode_row, loaded, typed_episodes
from figure_checks import named

RESPONSE, TAIL = "against_base_response_censored_s", "against_base_jct_p95_s"


def rows(method: str, responses: Any, seed: int | None = None, **more: Any) -> list[dict[str, Any]]:
    """Rows of problems of other sizes and seeds, whose responses (P, E) are given."""
    at = {"scenario": "any", "family": "basic", "mask": "feasible"} | more
    return [
        episode_row(
            *(method, seed, 6 + p, e),
            **{"eval_seed": 10**15 + p, "number": p, "response_censored_s": value, "jct_p95_s": 2 * value**2} | at,
        )
        for p, of_problem in enumerate(responses)
        for e, value in enumerate(of_problem)
    ]


def table_of(*parts: list[dict[str, Any]]) -> pd.DataFrame:
    episodes = typed_episodes([row for part in parts for row in part])
    return family_table(episodes, log_ratios(episodes)[1]).set_index("variant")


def test_every_problem_counts_once() -> None:
    base = rows("fastest-idle", [[1.0, 1.0, 1.0], [10.0], [100.0]])
    table = table_of(base, rows("large-only", [[0.5, 2.0, 4.0], [5.0], [100.1]]))
    logs = [math.log(0.5 * 2 * 4) / 3, math.log(0.5), math.log(1.001)]
    row = table.loc["large-only"]
    assert row[RESPONSE] == pytest.approx(100 * math.expm1(np.mean(logs)))
    assert row[TAIL] == pytest.approx(100 * math.expm1(2 * np.mean(logs)))
    assert row[WORST] == pytest.approx(math.exp(logs[0]))
    assert row[WORSE] == pytest.approx(100 / 3), "a tenth of a per cent is no worse"
    assert (row["problems"], row["seeds_note"]) == (3, "fixed")
    assert math.isnan(row[f"{RESPONSE}_low"]), "three problems carry no interval"


def test_a_second_evaluation_seed_makes_no_second_problem() -> None:
    """It doubled the number of independent problems, and the intervals became narrower by a third."""
    base, other = [[1.0, 2.0], [10.0, 9.0], [100.0, 90.0]], [[0.5, 2.0], [5.0, 8.0], [100.0, 80.0]]
    once = table_of(rows("fastest-idle", base), rows("large-only", other))
    named = (("fastest-idle", base), ("large-only", other))
    twice = table_of(*(rows(name, values, **more) for name, values in named for more in ({}, {"eval_seed": 7})))
    pd.testing.assert_frame_equal(twice, once)
    assert twice.loc["large-only", "problems"] == 3


def test_an_interval_is_over_problems_and_over_seeds() -> None:
    generator = np.random.default_rng(1)
    base = 10 ** generator.uniform(0, 2, (20, 1))
    better = base * generator.normal(0.9, 0.02, base.shape)
    one = table_of(rows("fastest-idle", base), rows("scale", better, seed=1)).loc["scale"]
    assert -12 < one[f"{RESPONSE}_low"] < one[RESPONSE] < one[f"{RESPONSE}_high"] < -8
    several = [rows("scale", better * (1 + 0.02 * (seed - 3)), seed=seed) for seed in range(1, 6)]
    five = table_of(rows("fastest-idle", base), *several).loc["scale"]
    assert five[f"{RESPONSE}_high"] - five[f"{RESPONSE}_low"] > 1.5 * (one[f"{RESPONSE}_high"] - one[f"{RESPONSE}_low"])
    assert five["seeds"] == 5


def test_the_base_is_fastest_idle_or_else_the_first_rule() -> None:
    one, other = rows("large-only", [[2.0], [3.0]]), rows("round-robin", [[3.0], [3.0]])
    learned = rows("scale", [[1.0], [1.0]], seed=1)
    assert log_ratios(typed_episodes([*learned, *one, *other, *rows("fastest-idle", [[1.0]])]))[0] == "fastest-idle"
    assert log_ratios(typed_episodes([*learned, *other, *one]))[0] == "large-only"
    assert log_ratios(typed_episodes(learned)) == ("", {})


def test_only_shared_problems_count() -> None:
    base = rows("fastest-idle", [[4.0], [4.0]])
    row = table_of(base, rows("large-only", [[2.0], [4.0], [400.0]])).loc["large-only"]
    assert (row["problems"], row[WORST]) == (2, 1)


def test_a_report_shows_families_apart_from_scales(tmp_path: Any) -> None:
    plain = [
        episode_row(method, None, servers, e, response_censored_s=1.0 + e, scenario="steady-0.7")
        for method in ("fastest-idle", "large-only")
        for servers in (16, 32)
        for e in range(3)
    ]
    of_family = [*rows("fastest-idle", [[1.0]] * 6), *rows("large-only", [[2.0 + p] for p in range(6)])]
    frames = loaded([*plain, *of_family])
    results = Results(tmp_path, **frames, manifest={})
    found = list(sections(results))
    assert [section.setting[0] for section in found] == ["steady-0.7", ""]
    assert [item.name.split("-any")[0] for item in found[1].items] == ["family", "over-problems"]
    (best,) = found[1].best
    assert best.startswith("Over 6 problems of any the best besides fastest-idle is large-only, ")
    assert best.endswith("differs by 314.07 [154.05, 574.88] %.")
    assert not any("any" in str(named.table.to_csv()) for named in found[0].tables)
    offered = options(frames["episodes"], frames["training"])
    assert offered.settings == (Setting("steady-0.7", "none", "argmax"),)
    assert offered.scales == (16, 32)


def test_the_figure_has_a_sorted_curve_per_method() -> None:
    episodes = typed_episodes([*rows("fastest-idle", [[1.0]] * 3), *rows("large-only", [[3.0], [0.5], [1.0]])])
    base, found = log_ratios(episodes)
    chart = comparison.over_problems(
        {n: by_problem(logs) for n, logs in found.items()}, base, looks(episodes, [*found])
    )
    marks = named(chart.panels[0])["large-only"]
    np.testing.assert_allclose(marks.y, [-50, 0, 200])
    np.testing.assert_allclose(marks.x, [100 / 6, 50, 500 / 6])
