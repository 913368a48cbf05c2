"""Which episode a report shows as Gantt charts."""

from __future__ import annotations

from rllib_scale_analysis.report.replays import MOST_TASKS, title_of, typical_episode

from artificial_results import artificial_episodes, episode_row, typed_episodes


def rows_of(method: str, counts: list[int | None], seed: int | None = 42, **values: object) -> list[dict[str, object]]:
    return [
        episode_row(method, seed, 16, e, **{"completed": c, "arrived": 20, "response_mean_s": 4.5} | values)
        for e, c in enumerate(counts)
    ]


def test_the_typical_episode_of_the_first_pair() -> None:
    rows = rows_of("scale", [5, 6, 7, 8, 9]) + rows_of("crossattn", [6, 8, 9, 10, 19]) + rows_of("ppo", [1] * 5)
    typical = typical_episode(typed_episodes(rows), 16)
    assert [(row["variant"], row["episode"]) for row in typical] == [("scale", 1), ("crossattn", 1)]
    said = "crossattn, seed 42: mean response 4.50 s, 8 of 20 tasks completed"
    assert title_of(typical[1]) == said


def test_both_sides_play_the_same_workload_with_a_seed_of_both() -> None:
    rows = artificial_episodes(seeds=(3, 4), methods=("scale", "crossattn"), scales=(16,))
    rows = [r for r in rows if (r["method"], r["train_seed"], r["episode"]) not in (("scale", 4, 0), ("scale", 4, 1))]
    rows = [r for r in rows if (r["method"], r["train_seed"]) != ("crossattn", 3)]
    chosen = typical_episode(typed_episodes(rows), 16)
    assert [row["train_seed"] for row in chosen] == [4, 4]
    assert len({(row["eval_seed"], row["episode"]) for row in chosen}) == 1
    assert chosen[0]["episode"] >= 2


def test_the_base_rule_beside_the_best_other_method_and_a_method_alone() -> None:
    rows = rows_of("scale", [5, 6, 7]) + rows_of("fastest-idle", [10, 10, 10], seed=None) + rows_of("ppo", [1, 2, 3])
    chosen = typical_episode(typed_episodes(rows), 16)
    assert [(row["variant"], row["episode"]) for row in chosen] == [("fastest-idle", 1), ("scale", 1)]
    assert title_of(chosen[0]).startswith("fastest-idle: mean response")
    waits = [row | {"scenario": "steady-0.7", "response_censored_s": 12.0 - row["completed"]} for row in rows]
    assert [row["variant"] for row in typical_episode(typed_episodes(waits), 16)] == ["fastest-idle", "scale"]
    (alone,) = typical_episode(typed_episodes(rows_of("scale", [9, 5, 7])), 16)
    assert alone["episode"] == 2


def test_missing_completions_are_no_error_and_where_there_is_nothing_to_show() -> None:
    assert typical_episode(typed_episodes([]), 16) == []
    assert typical_episode(typed_episodes(rows_of("scale", [5])), 32) == []
    assert typical_episode(typed_episodes(rows_of("scale", [5], arrived=MOST_TASKS + 1)), 16) == []
    assert typical_episode(typed_episodes(rows_of("scale", [5], arrived=None)), 16) == []
    missing = rows_of("scale", [5, 6]) + rows_of("crossattn", [None, 8])
    assert len(typical_episode(typed_episodes(missing), 16)) == 2
    apart = rows_of("scale", [5]) + [r | {"eval_seed": 2} for r in rows_of("crossattn", [5])]
    assert typical_episode(typed_episodes(apart), 16) == []
