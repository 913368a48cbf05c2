"""Results in a bucket, on a real S3 server: what is copied, what is left out, and what an interrupted copy leaves."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from rllib_scale.errors import UserError
from rllib_scale.results.storage import Location, fetch
from rllib_scale.results.tables import is_own, open_folder, remember
from rllib_scale.sweeps.checkpoints import newest_checkpoints, newest_in, reading, writing
from s3_server import s3_server

RESULTS = (
    "manifest.json",
    "episodes/part-000000-ab.parquet",
    "policies/a/policy.json",
    "policies/a/policy.safetensors",
)


@pytest.fixture
def bucket() -> Iterator[str]:
    with s3_server() as place:
        yield place


def quiet(_: str) -> None:
    pass


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_few_bytes_are_read_from_a_store_that_refuses_every_fifth_request(tmp_path: Path) -> None:
    """The refusal is longer than the file."""
    with s3_server(refuse_every=5) as bucket:
        place = Location(bucket % "a")
        (place / "few").write(b"few")
        for number in range(9):
            assert (place / "few").read() == b"few"
            place.download("few", tmp_path / str(number))
            assert (tmp_path / str(number)).read_text() == "few"


def test_results_in_a_bucket_are_fetched_without_what_ray_tune_keeps(bucket: str, tmp_path: Path) -> None:
    place = Location(bucket % "a")
    assert not place.names()
    with place.writing() as folder:
        write(folder, *RESULTS, "report/report.html")
        assert not place.files()
    unfinished = "trials/run-001/c/result.json"  # which `status` reads; that of a is published
    for name in ("a/result.json", "a/error.txt", "c/result.json", "c/checkpoint_000000/epoch-000001.zip"):
        (place / "trials/run-001" / name).write(b"")
    said: list[str] = []
    fetch(place, tmp_path / "here", said.append)
    assert names(tmp_path / "here") == {*RESULTS, "report/report.html", unfinished}
    assert said[0].startswith("fetched 6 files")
    changed = place.files()[unfinished].mtime
    assert changed is not None
    for path in (tmp_path / "here" / unfinished, tmp_path / "here" / "trials"):
        assert path.stat().st_mtime == changed.timestamp(), "as old as in the bucket"


def test_an_interrupted_fetch_leaves_no_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write(source, *RESULTS)
    download = Location.download

    def breaks(self: Location, name: str, here: Path) -> None:
        if name == "policies/a/policy.safetensors":
            raise KeyboardInterrupt
        download(self, name, here)

    monkeypatch.setattr(Location, "download", breaks)
    with pytest.raises(KeyboardInterrupt):
        fetch(Location(str(source)), target, quiet)
    assert names(target) == {"episodes/part-000000-ab.parquet"}


def test_what_is_no_results_folder_is_refused(bucket: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no results folder there \(no manifest.json\)"):
        fetch(Location(str(tmp_path / "none")), tmp_path / "target", quiet)
    (Location(bucket % "other") / "letter").write(b"")
    with pytest.raises(UserError, match="not empty and without a manifest"):
        open_folder(Location(bucket % "other"), "x", {}, "0")


def test_a_bad_place_is_refused_and_its_secret_not_repeated() -> None:
    with pytest.raises(UserError, match="unknown scheme 'ftp'; valid: a path, file, s3, gs, gcs"):
        Location("ftp://host/results")
    for secret in ("AKIAIOSFODNN7EXAMPLE:planted", ":planted", "planted"):
        with pytest.raises(UserError, match="credentials do not belong in a URI") as caught:
            Location(f"s3://{secret}@bucket/results")
        assert "planted" not in str(caught.value)
    assert Location("s3://anonymous@bucket/results").text == "s3://anonymous@bucket/results"


def test_a_location_is_what_its_text_says(tmp_path: Path) -> None:
    assert Location(f"file://{tmp_path}/a").local == tmp_path / "a"
    bucket = Location("s3://bucket/a?region=eu-west-1&endpoint_override=localhost:9000")
    assert str(bucket / "b") == "s3://bucket/a/b?region=eu-west-1&endpoint_override=localhost:9000"
    assert bucket.local is None
    assert pickle.loads(pickle.dumps(bucket)) == bucket
    assert Location("relative/place").local == Path("relative/place").absolute()


@pytest.mark.parametrize("is_local", [False, True])
def test_the_latest_whole_checkpoint_is_found_over_all_runs_and_published(
    is_local: bool, bucket: str, tmp_path: Path
) -> None:
    trials = Location(f"file://{tmp_path}/trials" if is_local else bucket % "trials")
    assert newest_checkpoints(trials) == {}
    for place, epoch in (("run-001/a", 25), ("run-002/a", 30), ("run-002/b", 40), ("run-003/a", 20)):
        with (trials / place / "checkpoint_000001").writing() as folder, writing(folder, epoch) as content:
            write(content, "policy/policy.json", "algorithm/state.pkl")
            (content / "curve.json").write_text(json.dumps([{"epoch": epoch}]))
    newest = trials / "run-002" / "a" / "checkpoint_000001"
    assert [*newest.files()] == ["epoch-000030.zip"], "one file, and so few requests"
    found = newest_checkpoints(trials)
    assert found == {"a": newest_in(newest), "b": newest_in(trials / "run-002" / "b")}
    assert found["a"].epoch == 30
    if newest.local is not None:  # a store shows complete files only
        archive = newest.local / "epoch-000030.zip"
        archive.write_bytes(archive.read_bytes()[:-20])
        assert newest_in(newest) is None
        found = newest_checkpoints(trials)
        assert found["a"].epoch == 25
    assert found["a"].curve() == [{"epoch": found["a"].epoch}]
    with reading(found["a"]) as folder:
        assert names(folder) == {"contents.json", "curve.json", "policy/policy.json", "algorithm/state.pkl"}
    assert not folder.exists()


def test_the_checkpoints_of_many_trainings_are_found_without_a_request_for_each() -> None:
    heard: list[str] = []
    with s3_server(heard=heard) as bucket:
        trials = Location(bucket % "trials")
        for number in range(20):
            with (trials / f"run-001/t{number}/checkpoint_000001").writing() as folder, writing(folder, 1):
                pass
        heard.clear()
        assert len(newest_checkpoints(trials)) == 20
        assert len(heard) <= 3, heard


def test_a_folder_is_own_only_where_and_when_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    remember("/results/a", "2026-01-01T00:00:00+00:00")
    assert is_own("/results/a", "2026-01-01T00:00:00+00:00")
    assert not is_own("/results/b", "2026-01-01T00:00:00+00:00")
    assert not is_own("/results/a", "2026-01-02T00:00:00+00:00")  # another folder took its place
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    assert not is_own("/results/a", "2026-01-01T00:00:00+00:00")


def test_a_sweep_that_is_killed_as_its_manifest_appears_owns_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would refuse its own checkpoints when it is resumed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    write = Location.write

    def killed(self: Location, content: bytes) -> None:
        write(self, content)
        raise KeyboardInterrupt

    home = Location(str(tmp_path / "results"))
    with monkeypatch.context() as process:
        process.setattr(Location, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            open_folder(home, "x", {}, "0")
    again = open_folder(Location(f"file://{tmp_path}/results"), "x", {}, "0")
    assert is_own(str(home), again)


def test_a_file_on_a_disk_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy whose file is written in place is torn by a full disk."""
    place = Location(str(tmp_path)) / "policy.json"
    place.write(b"old")
    write = Path.write_bytes

    def full(self: Path, content: bytes) -> None:
        write(self, content[:2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UserError, match="No space left"):
        place.write(b"whole")
    assert place.read() == b"old"
    assert names(tmp_path) == {"policy.json"}
