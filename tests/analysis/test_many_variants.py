"""A grid of many settings: each is compared with its like alone, pages show the best ones, files hold all."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from rllib_scale_analysis.figures import draw, evaluation
from rllib_scale_analysis.figures.style import OTHERS, looks
from rllib_scale_analysis.figures.training import training_curves
from rllib_scale_analysis.load import load
from rllib_scale_analysis.report.write import write_report
from rllib_scale_analysis.rows import MOST_SHOWN, left_out, variants
from rllib_scale_analysis.tables.comparisons import default_pairs
from rllib_scale_analysis.tables.methods import table4

from artificial_results import artificial_training, episode_row, typed_episodes, write_folder
from parsed_html import Parsed

SETTINGS = range(20)


def test_of_many_variants_the_best_are_shown_and_each_is_compared_with_its_like(tmp_path: Path) -> None:
    episodes, training = [], []
    curve = artificial_training(seeds=(42,), methods=("scale",), epochs=3)
    for method in ("scale", "crossattn"):
        for k in SETTINGS:
            identity = {"settings": {"algorithm.learning_rate": k}}
            completed = 100 + 2 * k + (method == "scale")  # the higher the setting, the better
            episodes += [episode_row(method, 42, 16, e, **identity, completed=completed + e) for e in range(2)]
            training += [row | identity | {"method": method, "episode_return": completed} for row in curve]
    episodes += [episode_row("fastest-idle", None, 16, e, completed=90 + e) for e in range(2)]
    found = load(write_folder(tmp_path / "results", episodes, training))

    pairs = default_pairs(found.episodes)
    assert len(pairs) == 20 + 40
    assert {(a.split("=")[1], b.split("=")[1]) for a, b in pairs if b != "fastest-idle"} == {
        (f"{k})", f"{k})") for k in SETTINGS
    }
    page = write_report(tmp_path / "results")
    best = {f"{method} (algorithm.learning_rate={k})" for method in ("scale", "crossattn") for k in range(14, 20)}
    assert len(best) == MOST_SHOWN
    shown = [text for text in Parsed(page.read_text(encoding="utf-8")).within("td") if "learning_rate" in text]
    assert set(shown) == best
    assert "Shown are the 12 best of 40 learned variants by mean rank." in page.read_text(encoding="utf-8")
    (table3,) = page.parent.glob("tables/table3-*.csv")
    assert len(pd.read_csv(table3)) == 41
    chart = training_curves(found.training, ["episode_return"])
    assert {marks.name for marks in chart.panels[0].marks if marks.name} == {*best, "28 others"}


def test_a_grid_of_weights_opens_with_a_map_on_which_bright_is_better_and_draws_the_rest_in_grey(
    tmp_path: Path,
) -> None:
    rows = []
    for k in range(16):
        weights = {"srr.lambda_decorrelation": 10.0 ** (k // 4 - 4), "srr.lambda_kl": 10.0 ** (k % 4 - 5)}
        values = {"response_censored_s": 5 + abs(k - 6), "response_mean_s": 4 + abs(k - 6), "scenario": "steady-0.7"}
        for servers in (16, 32, 48, 64):
            row = episode_row("scale", 42, servers, 0, settings=weights, completed=9)
            rows.append(row | {name: v if isinstance(v, str) else float(v) for name, v in values.items()})
    episodes = typed_episodes(rows)
    table = table4(episodes)
    at_16 = table[table["test_servers"] == 16]
    (panel,) = evaluation.lambda_map(episodes, at_16, "response_censored_s").panels
    assert panel.grid is not None
    assert panel.grid.values.max(axis=None) == panel.grid.values.loc["λ₁ = 0.001", "λ₂ = 0.001"] == -5
    assert panel.grid.texts.loc["λ₁ = 0.001", "λ₂ = 0.001"] == "★ 5.00"
    assert panel.grid.texts.stack().str.contains("★").sum() == 1
    hidden, _ = left_out([(table, "response_censored_s")])
    of = looks(episodes, [name for name in variants(episodes) if name not in hidden])
    assert len({look.colour for look in of.values()}) == len(of) == MOST_SHOWN
    (in_rows, _) = evaluation.methods(at_16, of, by="response_censored_s").panels
    values = [float(marks.x.iloc[0]) for marks in in_rows.marks]
    assert values == sorted(values)
    assert [marks.look.colour == OTHERS.colour for marks in in_rows.marks] == [False] * 12 + [True] * 4
    lines = evaluation.against_servers(table, of).panels[0].marks
    assert (lines[0].name, lines[0].look) == ("4 others", OTHERS)
    figure = draw.draw(evaluation.lambda_map(episodes, at_16, "response_censored_s"))
    draw.save(figure, path := tmp_path / "map.svg")
    assert "λ₂ = 0.0001<" in path.read_text(encoding="utf-8"), "numbers in texts keep their digits"
