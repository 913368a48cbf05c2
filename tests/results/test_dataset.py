"""Rows in parts: nothing is lost or doubled by a crash, and only what is asked for is read."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllib_scale.errors import UserError
from rllib_scale.results import dataset
from rllib_scale.results.columns import EPISODE_COLUMNS, EPISODE_KEY
from rllib_scale.results.dataset import LONGEST_S, PART_S, Rows, append, parts, read, units
from rllib_scale.results.storage import Location
from s3_server import s3_server
from seeds import examples

UNITS = [f"unit-{number}" for number in range(6)]


@pytest.fixture(params=["disk", "bucket"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Location]:
    if request.param == "disk":
        yield Location(str(tmp_path))
        return
    with s3_server() as bucket:
        yield Location(bucket % "a")


def rows_of(unit: str, **values: Any) -> list[dict[str, Any]]:
    """Two episodes of a unit."""
    key = dict.fromkeys(EPISODE_KEY, 0) | {name: unit for name in EPISODE_KEY if EPISODE_COLUMNS[name][0] == "string"}
    return [key | {"unit": unit, "episode": episode} | values for episode in range(2)]


def rows_at(home: Location, clock: Any = None) -> Rows:
    return Rows(home, lambda home: None) if clock is None else Rows(home, lambda home: None, clock)


class Crash(BaseException):
    """The end of a process."""


@examples(30)
@given(crashes=st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=6), batch=st.integers(1, 4))
def test_a_crash_neither_loses_nor_doubles_a_unit(
    crashes: list[tuple[int, bool]], batch: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each process ends before or after it writes one of its parts; the last one ends well."""
    home = Location(str(tmp_path_factory.mktemp("crash")))
    write = Location.write

    def attempt(left: int | None, after: bool) -> None:
        def crashing(self: Location, content: bytes) -> None:
            nonlocal left
            if left == 0 and not after:
                raise Crash
            write(self, content)
            if left == 0:
                raise Crash
            left = None if left is None else left - 1

        rows, done = rows_at(home), units(home) & units(home, "features")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Location, "write", crashing)
            for number, unit in enumerate(unit for unit in UNITS if unit not in done):
                rows.add("features", rows_of(unit)[:1])
                rows.add("episodes", rows_of(unit))
                if number % batch == batch - 1:
                    rows.flush()
            rows.flush()

    for left, after in crashes:
        try:
            attempt(left, after)
        except Crash:
            assert units(home) <= units(home, "features"), "a unit counts once its features are there"
    attempt(None, False)
    for table, each in (("episodes", 2), ("features", 1)):
        assert read(home, table)["unit"].value_counts().to_dict() == dict.fromkeys(UNITS, each)
    assert len(read(home, "episodes", ["unit"])) == 2 * len(UNITS), "nothing is written twice"


def test_only_the_columns_and_rows_that_are_asked_for_are_read_and_the_newest_of_a_key_counts(home: Location) -> None:
    assert (len(read(home, "episodes")), units(home)) == (0, set())
    append(home, episodes=[*rows_of("a", completed=1, utilisation_large=0.5), *rows_of("b", completed=2)])
    pd.DataFrame(rows_of("c")).drop(columns="unit").to_parquet(buffer := io.BytesIO())
    (home / "episodes" / "part-000000.parquet").write(buffer.getvalue())  # the oldest, without most columns
    append(home, episodes=rows_of("a", completed=3, utilisation_small=0.25))
    assert len(parts(home, "episodes")) == 3
    whole = read(home, "episodes")
    assert {name: str(whole[name].dtype) for name in EPISODE_COLUMNS} == {n: t for n, (t, _) in EPISODE_COLUMNS.items()}
    assert (
        whole.dropna(subset="completed")[["scheduler", "completed"]].to_numpy().tolist()
        == [["b", 2]] * 2 + [["a", 3]] * 2
    )
    assert whole["utilisation_small"].notna().sum() == 2
    assert units(home) == {"a", "b"}
    some = read(home, "episodes", ["unit", "completed"], pc.field("unit") == "b")
    assert some.to_dict("list") == {"unit": ["b", "b"], "completed": [2, 2]}


def test_what_is_finished_is_known_from_the_footers_of_parts_alone(home: Location) -> None:
    for unit in UNITS:
        append(home, episodes=rows_of(unit))
    for name in parts(home, "episodes"):
        part = home / "episodes" / name
        content = bytearray(part.read())
        footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
        content[4:footer] = bytes(footer - 4)  # rows that cannot be read
        part.write(bytes(content))
    assert units(home) == set(UNITS)
    with pytest.raises(UserError):
        read(home, "episodes", ["unit"])


def test_a_torn_part_is_named(home: Location) -> None:
    append(home, episodes=rows_of("a"))
    append(home, episodes=rows_of("b"))
    _, torn = parts(home, "episodes")
    (home / "episodes" / torn).write(b"PAR1")
    with pytest.raises(UserError, match=rf"{torn}.*: not a readable results table"):
        read(home, "episodes")


def test_a_sweep_of_three_days_makes_hundreds_of_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, written = 0.0, list[float]()
    rows = rows_at(Location(str(tmp_path)), lambda: now)
    monkeypatch.setattr(Rows, "write", lambda self, table, frame: written.append(now))
    while now < 3 * 86400:
        rows.add("trainings", [{"name": "a"}])
        if rows.is_due:
            rows.flush()
        now += 10.0
    assert 100 < len(written) < 1000
    waits = [later - sooner for sooner, later in itertools.pairwise(written)]
    assert min(waits) == PART_S + 10.0
    assert max(waits) == LONGEST_S + 10.0
    rows.add("episodes", [{}] * dataset.PART_ROWS)
    assert rows.is_due, "so many do not wait"
