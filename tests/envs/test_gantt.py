"""The Gantt chart shows exactly the rows of a schedule."""

import itertools

import numpy as np
import pytest
from PIL import Image

from rllib_scale.config import ClusterConfig, TierConfig
from rllib_scale.envs.gantt import Chart, draw_gantt, draw_gantts, film, save_film, to_rgb
from rllib_scale.envs.places import places_of
from rllib_scale.simulator.record import SCHEDULE

END_S = 12.0


def some_schedule(cluster: ClusterConfig, rows: int) -> np.ndarray:
    rng = np.random.default_rng(rows)
    schedule = np.zeros(rows, dtype=SCHEDULE)
    schedule["workflow"] = rng.integers(20, size=rows)
    schedule["server"] = rng.integers(cluster.num_servers, size=rows)
    schedule["arrival_s"] = schedule["workflow"] * 0.1
    schedule["start_s"] = rng.uniform(2, 10, size=rows)
    schedule["finish_s"] = schedule["start_s"] + rng.uniform(0.1, 2, size=rows)
    schedule["finish_s"][::3] = np.nan
    return schedule


@pytest.mark.parametrize("servers", [4, 128])
def test_bars_are_the_rows(servers):
    cluster = ClusterConfig(servers=servers)
    schedule = some_schedule(cluster, 5 * servers)
    axes = draw_gantt(schedule, cluster, END_S).axes[0]
    bars = [bar for container in axes.containers for bar in container]
    assert len(bars) == len(axes.patches) == len(schedule)
    drawn = {(bar.get_y() + bar.get_height() / 2, bar.get_x(), bar.get_width(), bool(bar.get_hatch())) for bar in bars}
    stop = np.nan_to_num(schedule["finish_s"], nan=END_S)
    unfinished = np.isnan(schedule["finish_s"])
    expected = zip(schedule["server"], schedule["start_s"], stop - schedule["start_s"], unfinished, strict=True)
    np.testing.assert_allclose(sorted(drawn), sorted((float(a), b, c, bool(d)) for a, b, c, d in expected), atol=1e-9)


def test_what_a_server_runs_at_once_stands_on_lanes_of_its_own():
    tiers = (
        TierConfig(name="single", count=3, compute_gflops=1, memory_gb=8),
        TierConfig(name="double", count=2, compute_gflops=1, memory_gb=8, max_concurrent=2),
    )
    attempts = [  # server, start, finish, lane: servers 3 and 4 have lanes 3, 4 and 5, 6
        (4, 0.0, 4.0, 5),
        (4, 1.0, 2.0, 6),
        (2, 1.0, 3.0, 2),
        (4, 2.0, np.nan, 6),
        (3, 2.5, 5.0, 3),
        (4, 4.0, 5.0, 5),
        (4, 4.5, 6.0, 5),  # none is free: measured times
    ]
    schedule = np.zeros(len(attempts), dtype=SCHEDULE)
    for row, (server, start, finish, _) in zip(schedule, attempts, strict=True):
        row["server"], row["start_s"], row["finish_s"] = server, start, finish
    cluster = ClusterConfig(tiers=tiers)
    chart = Chart(schedule, cluster, END_S)
    lanes = [lane for *_, lane in attempts]
    assert chart.lanes.tolist() == lanes
    assert chart.tiers == [("single (3)", 0, 3), ("double (2)", 3, 7)]
    axes = draw_gantt(schedule, cluster, END_S).axes[0]
    drawn = sorted((bar.get_x(), bar.get_y() + bar.get_height() / 2) for bar in axes.patches)
    np.testing.assert_allclose(drawn, sorted(zip(schedule["start_s"], lanes, strict=True)))
    assert axes.get_ylim()[0] == 6.5
    assert axes.get_yticks().tolist() == [0, 1, 2, 3.5, 5.5]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "1", "2", "3", "4"]
    shuffled = np.array([3, 0, 6, 2, 5, 1, 4])
    assert places_of(schedule[shuffled], cluster).tolist() == [lanes[k] for k in shuffled]


def test_a_workflow_has_one_colour_and_one_arrival_mark():
    cluster = ClusterConfig()
    schedule = some_schedule(cluster, 60)
    axes = draw_gantt(schedule, cluster, END_S).axes[0]
    colour = {}
    for bar in (bar for container in axes.containers for bar in container):
        row = schedule[np.isclose(schedule["start_s"], bar.get_x())][0]
        assert colour.setdefault(row["workflow"], bar.get_facecolor()) == bar.get_facecolor()
    assert len(set(colour.values())) > 5
    (marks,) = axes.collections
    np.testing.assert_allclose(np.sort(marks.get_offsets()[:, 0]), np.unique(schedule["arrival_s"]))
    assert (marks.get_offsets()[:, 1] < -0.5).all()  # above the first lane


@pytest.mark.parametrize("servers", [4, 128])
def test_lanes_and_labels_have_room(servers):
    cluster = ClusterConfig(servers=servers, empty_slots=3)
    figure = draw_gantt(some_schedule(cluster, 10), cluster, END_S)
    axes = figure.axes[0]
    figure.canvas.draw()
    lane_px = abs(axes.transData.transform((0, 1))[1] - axes.transData.transform((0, 0))[1])
    assert lane_px >= 8
    labels = [label for label in axes.get_yticklabels() if label.get_text()]
    boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: box.y0)
    assert len(labels) >= min(servers, 40)
    assert all(below.y1 <= above.y0 for below, above in itertools.pairwise(boxes))
    assert {text.get_text() for text in axes.texts} >= {f"{tier.name} ({tier.count})" for tier in cluster.tiers}
    assert axes.get_ylim()[0] == servers - 0.5  # empty rows have no lane


def test_a_film_shows_what_has_happened_and_nothing_else(tmp_path):
    cluster = ClusterConfig()
    figure = draw_gantt(some_schedule(cluster, 40), cluster, END_S)
    whole, pictures = to_rgb(figure), film(figure, 5)
    assert whole.shape == (*figure.canvas.get_width_height()[::-1], 3)
    box = figure.axes[0].get_window_extent()
    top, bottom = round(len(whole) - box.y1) + 2, round(len(whole) - box.y0) - 2
    quantised = np.asarray(pictures[-1].convert("RGB"))
    for number, picture in enumerate(pictures[:-1]):
        now = round(box.x0 + number / 4 * (box.x1 - box.x0))
        image = np.asarray(picture.convert("RGB"))
        np.testing.assert_array_equal(image[:, : now - 1], quantised[:, : now - 1])
        future = image[top:bottom, now + 3 : round(box.x1) - 2]
        assert (future.min(axis=2) > 240).all(), "what is to come is blank"
    assert (quantised[top:bottom].min(axis=2) < 200).any()
    save_film(pictures, tmp_path / "film.gif")
    with Image.open(tmp_path / "film.gif") as film_read:
        assert (film_read.n_frames, film_read.size) == (5, (whole.shape[1], whole.shape[0]))


def test_several_schedules_stand_one_above_the_other_on_one_axis():
    charts = [
        Chart(some_schedule(ClusterConfig(), rows), ClusterConfig(), end, f"{rows}") for rows, end in ((20, 9), (5, 12))
    ]
    figure = draw_gantts(charts, "both")
    assert figure.get_suptitle() == "both"
    upper, lower = figure.axes
    assert (len(upper.patches), len(lower.patches)) == (20, 5)
    assert upper.get_xlim() == lower.get_xlim() == (0, 12)
    assert (upper.get_title(loc="left"), lower.get_title(loc="left")) == ("20", "5")
    assert upper.get_position().y0 > lower.get_position().y1
    figure.canvas.draw()
    bars = [bar for bar in upper.patches if bar.get_hatch()]
    np.testing.assert_allclose([bar.get_x() + bar.get_width() for bar in bars], 9)  # not finished by its own end


def test_every_bar_is_named_after_its_task_in_an_svg(tmp_path):
    schedule = some_schedule(ClusterConfig(), 12)
    schedule["task"] = np.arange(12)
    draw_gantt(schedule, ClusterConfig(), END_S).savefig(tmp_path / "g.svg")
    text = (tmp_path / "g.svg").read_text()
    assert all(f'id="task-{row["workflow"]}-{row["task"]}"' in text for row in schedule)
