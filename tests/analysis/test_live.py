"""The page of a live run, by literal attempts, and beside results of sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from rllib_scale_analysis.load import load
from rllib_scale_analysis.report.live import sections
from rllib_scale_analysis.report.replays import MOST_TASKS
from rllib_scale_analysis.report.write import write_report

from artificial_results import artificial_episodes, episode_row, identified, write_folder
from parsed_html import Parsed
from rllib_scale.config import ClusterConfig, TierConfig
from rllib_scale.errors import UserError
from rllib_scale.results import runs
from rllib_scale.results.columns import LIVE
from rllib_scale.results.runs import Run, Side
from rllib_scale.results.storage import Location
from rllib_scale.simulator.record import SCHEDULE

CLUSTER = ClusterConfig(
    tiers=(
        TierConfig(name="slow", count=1, compute_gflops=1.0, memory_gb=8.0),
        TierConfig(name="fast", count=1, compute_gflops=4.0, memory_gb=8.0, max_concurrent=2),
    )
)
# workflow, task, server, tier, arrival, ready, start, finish, outcome, transfer, work
LIVE_ATTEMPTS = [
    (0, 0, 1, "fast", 0.0, 0.0, 1.0, 3.0, "finished", 0.0, 8.0),
    (0, 1, 0, "slow", 0.0, 3.0, 3.0, 7.0, "finished", 0.0, 4.0),
    (1, 0, 1, "fast", 2.0, 2.0, 5.0, np.nan, "running", 0.0, np.nan),
]
SIMULATED_ATTEMPTS = [
    (0, 0, 1, "fast", 0.0, 0.0, 0.0, 2.0, "finished", 0.0, 8.0),
    (0, 1, 0, "slow", 0.0, 2.0, 2.0, 6.0, "finished", 0.0, 4.0),
    (1, 0, 1, "fast", 2.0, 2.0, 3.0, 4.0, "finished", 0.0, 4.0),
]


def add_run(folder: Path, name: str, live_s: float = 6.0, times: int = 1, **values: Any) -> Run:
    """A run and its simulation in a results folder, each attempt so many times."""
    sides = ((name + LIVE, live_s, 2), (name, 5.0, 3))
    rows = [
        episode_row(side, None, 2, 0, scenario="steady-0.7", arrived=3, completed=done, response_censored_s=response)
        for side, response, done in sides
    ]
    keys, _ = identified(rows)
    write_folder(folder, rows, [])
    live, simulated = (np.array(attempts * times, dtype=SCHEDULE) for attempts in (LIVE_ATTEMPTS, SIMULATED_ATTEMPTS))
    given: dict[str, Any] = {
        "scheduler": name,
        "scenario": "steady-0.7",
        "cluster": CLUSTER,
        "time_scale": 0.1,
        "overheads_s": [0.01, 0.02, 0.04],
        "failed": {1: "its task raised"},
        "guard": "guard fastest-idle: could not act",
        "live": Side.of(keys[0], live, 8.0),
        "simulated": Side.of(keys[1], simulated, 6.0),
    }
    run = Run(**given | values)
    runs.write(Location(str(folder)), run)
    return run


def test_the_page_compares_a_run_with_its_simulation_and_ranks_nothing(tmp_path: Path) -> None:
    add_run(tmp_path / "r", "reserve")
    drawn: list[tuple[list[str], list[str]]] = []

    def gantt(rows: Any, titles: Any) -> Figure:
        drawn.append(([row["method"] for row in rows], [*titles]))
        return Figure()

    path = write_report(tmp_path / "r", tmp_path / "out", gantt)
    words = " ".join(Parsed(path.read_text(encoding="utf-8")).text.split())
    assert drawn == [
        (
            [f"reserve{LIVE}", "reserve"],
            [
                "live: mean response 0.00 s, end after 8.0 s",
                "simulated: mean response 0.00 s, end after 6.0 s",
            ],
        )
    ]
    for said in (
        "reserve on 2 servers, steady-0.7",
        "was 6.00 s, 20.0 % above its simulation (5.00 s); 2 of 3 tasks were completed.",
        "Ray added 20.0 ms to a task in the median, 39.6 ms to one in a hundred and 40.0 ms at most; a second of the "
        "workload took 100 ms.",
        "From ready to start took 1.33 s on average, 0.33 s in the simulation.",
        "Guard fastest-idle: could not act.",
        "Workflow 1 was given up: its task raised",
    ):
        assert said in words
    for ranked in ("Table 3", "Table 4", "seeds", "Not drawn", "the best first"):
        assert ranked not in words
    assert sorted(file.name.rpartition("-reserve-")[0] for file in (tmp_path / "out" / "tables").iterdir()) == [
        "run",
        "run-overhead",
        "run-waits",
    ]


def test_waits_and_use_of_each_tier_are_counted_from_the_attempts(tmp_path: Path) -> None:
    """What still runs at the end uses its place up to then; a tier of two places is half used by one task."""
    add_run(tmp_path, "reserve")
    (section,) = sections(load(tmp_path))
    table = section.table("run-waits").table.set_index("servers")
    assert table.loc["all", ["attempts", "attempts, simulated"]].tolist() == [3, 3]
    assert table["wait (s)"].tolist() == pytest.approx([4 / 3, 0, 2])
    assert table["wait (s), simulated"].tolist() == pytest.approx([1 / 3, 0, 0.5])
    assert table["busy"].tolist() == pytest.approx([(2 + 4 + 3) / (8 * 3), 4 / 8, (2 + 3) / (8 * 2)])
    assert table["busy, simulated"].tolist() == pytest.approx([(2 + 4 + 1) / (6 * 3), 4 / 6, (2 + 1) / (6 * 2)])
    overhead = section.table("run-overhead").table.set_index("measure")
    assert overhead.loc["largest"].tolist() == pytest.approx([40.0, 0.4])


def test_runs_beside_a_sweep_have_their_own_sections_and_change_no_ranking(tmp_path: Path) -> None:
    rows = artificial_episodes(seeds=(1,), scales=(16,), methods=("scale", "crossattn"), episodes=3)
    sweep = write_folder(tmp_path / "sweep", rows, [])
    alone = [section.name for section in sections(load(sweep))]
    for name in ("reserve", "heft"):
        add_run(tmp_path / "runs", name)
    found = list(sections(load(sweep, tmp_path / "runs")))
    assert [section.name for section in found[2:]] == alone
    assert {section.title for section in found[:2]} == {f"{n} on 2 servers, steady-0.7" for n in ("heft", "reserve")}
    assert set(found[2].table4["variant"]) == {"scale", "crossattn", "fastest-idle"} & set(found[2].table4["variant"])


def test_the_last_run_of_a_scheduler_counts_and_one_of_many_attempts_has_no_chart(tmp_path: Path) -> None:
    add_run(tmp_path, "reserve", live_s=9.0)
    add_run(tmp_path, "reserve", times=1 + MOST_TASKS // 3, overheads_s=[], guard="", failed={})
    (section,) = sections(load(tmp_path), lambda rows, titles: Figure())
    assert "6.00 s, 20.0 % above" in section.best[0]
    assert "402 attempts" in section.note
    assert len(section.best) == 2, "no guard, no workflow that was given up, and no time of Ray"
    assert not section.take("gantt")
    assert [named.name.rpartition("-reserve-")[0] for named in section.tables] == ["run", "run-waits"]


def whole_page(folder: str) -> None:
    """Streamlit runs this function's source."""
    from rllib_scale_analysis.dashboard.page import main

    from rllib_scale.results.storage import Location

    main([Location(folder)])


def test_the_dashboard_shows_one_policy_live_and_simulated(tmp_path: Path) -> None:
    apps = pytest.importorskip("streamlit.testing.v1")
    add_run(tmp_path / "runs", "reserve")
    page = apps.AppTest.from_function(whole_page, args=(str(tmp_path / "runs"),)).run(timeout=600)
    assert not page.exception
    assert page.tabs[0].label == "Live"
    assert page.selectbox(key="live run").options == ["reserve on 2 servers, steady-0.7"]
    assert any("20.0 % above its simulation" in line.value for line in page.markdown)
    assert not [one for one in page.multiselect if one.options], "it is not among the methods that are compared"
    rows = artificial_episodes(seeds=(1,), scales=(16,), methods=("scale", "crossattn"), episodes=3)
    add_run(write_folder(tmp_path / "both", rows, []), "reserve")
    page = apps.AppTest.from_function(whole_page, args=(str(tmp_path / "both"),)).run(timeout=600)
    assert not page.exception
    assert page.tabs[-1].label == "Live"
    assert "reserve" not in str(page.multiselect(key="Methods").options)
    (tmp_path / "runs" / "runs" / "other.json").write_text("{}")
    page = apps.AppTest.from_function(whole_page, args=(str(tmp_path / "runs"),)).run(timeout=600)
    assert not page.exception
    assert any("not a run of" in note.value for note in page.info)


def test_a_file_that_is_no_run_is_refused(tmp_path: Path) -> None:
    add_run(tmp_path, "reserve")
    (tmp_path / "runs" / "other.json").write_text("{}")
    with pytest.raises(UserError, match=r"runs/other\.json: not a run of `rllib-scale execute`"):
        list(sections(load(tmp_path)))
