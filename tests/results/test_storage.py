"""Folders elsewhere: what is copied, what is left out, and what a broken-off copy leaves behind."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest
from pyarrow import fs

from rllib_scale.errors import UserError
from rllib_scale.results.storage import Location, fetch, mirrored, results_folder
from rllib_scale.results.trust import is_own, remember
from rllib_scale.sweeps.checkpoints import epoch_of, latest_checkpoint, publish


def quiet(_: str) -> None:
    pass


def results(folder: Path) -> Path:
    for name in ("manifest.json", "episodes.parquet", "policies/a/policy.json", "policies/a/policy.safetensors"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "trials/run-001").mkdir(parents=True)
    (folder / "trials/run-001/result.json").write_text("{}")
    return folder


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_fetch_copies_what_is_missing_or_changed_and_trials_when_asked(scheme: str, tmp_path: Path) -> None:
    source, target = results(tmp_path / "source"), tmp_path / "target"
    there = Location(f"{scheme}{source}")
    said: list[str] = []
    fetch(there, target, False, said.append)
    assert names(target) == {name for name in names(source) if not name.startswith("trials/")}
    before = (target / "episodes.parquet").stat().st_ino

    (source / "manifest.json").write_text("manifest.JSON")  # as long as before
    os.utime(source / "manifest.json", (1, 1))
    fetch(there, target, True, said.append)
    assert names(target) == names(source)
    assert (target / "manifest.json").read_text() == "manifest.JSON"
    assert (target / "episodes.parquet").stat().st_ino == before
    assert [line.split(" files")[0] for line in said] == ["fetched 4", "fetched 2"]


def test_a_broken_off_fetch_leaves_no_manifest_and_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = results(tmp_path / "source"), tmp_path / "target"
    download = Location.download

    def breaks(self: Location, name: str, here: Path) -> None:
        if name == "policies/a/policy.safetensors":
            raise KeyboardInterrupt
        download(self, name, here)

    with monkeypatch.context() as patch:
        patch.setattr(Location, "download", breaks)
        with pytest.raises(KeyboardInterrupt):
            fetch(Location(source), target, False, quiet)
    assert names(target) == {"episodes.parquet"}
    fetch(Location(source), target, False, quiet)
    assert names(target) == {name for name in names(source) if not name.startswith("trials/")}


def test_what_is_no_results_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no results folder there \(no manifest.json\)"):
        fetch(Location(tmp_path / "none"), tmp_path / "target", False, quiet)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").touch()
    with (
        pytest.raises(UserError, match="not empty and without a manifest"),
        mirrored(Location(f"file://{tmp_path}/other"), quiet),
    ):
        pass


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("ftp://host/results", "unknown scheme 'ftp'; valid: a path, file, s3, gs, gcs"),
        ("s3://AKIAIOSFODNN7EXAMPLE:planted@bucket/results", "credentials do not belong in a URI"),
    ],
)
def test_a_bad_place_is_refused_and_its_secret_not_repeated(place: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        Location(place)
    assert "planted" not in str(caught.value)


def test_a_mirror_brings_results_back_and_forgets_what_was_half_uploaded(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    place = f"file://{elsewhere}"
    with results_folder(place, quiet) as (folder, storage):
        assert storage == Location(place)
        results(folder)
        (folder / ".temporary").touch()
    assert names(elsewhere) == {name for name in names(results(tmp_path / "like"))}
    assert not folder.exists()

    (elsewhere / "policies" / "b").mkdir()
    (elsewhere / "policies" / "b" / "policy.safetensors").touch()

    def fails() -> None:
        with results_folder(place, quiet) as (folder, _):
            assert names(folder / "policies") == {"a/policy.json", "a/policy.safetensors"}
            (folder / "late").write_text("kept although the block failed")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert (elsewhere / "late").is_file()


def test_results_that_cannot_be_uploaded_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "file").touch()
    said = pytest.raises(UserError, match="the results are kept in ")
    with said as caught, mirrored(Location(f"file://{tmp_path}/elsewhere"), quiet) as folder:
        (folder / "manifest.json").touch()
        (tmp_path / "elsewhere").symlink_to(tmp_path / "file")  # no folder can be made there
    kept = Path(str(caught.value).rsplit(" ", 1)[1])
    assert (kept / "manifest.json").is_file()


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that `s3://bucket` leads to, through a file system that is not this machine's."""
    root = tmp_path / "cloud"
    for name in ("a/policies/a", "a/trials/run-001", "c/policy"):
        (root / "bucket" / name).mkdir(parents=True)  # in a bucket there are none to make
    filesystem = fs.SubTreeFileSystem(str(root), fs.LocalFileSystem())
    monkeypatch.setattr(Location, "_resolved", property(lambda self: (filesystem, self.text.removeprefix("s3://"))))
    return root / "bucket"


def test_results_in_a_bucket_come_back_whole(bucket: Path, tmp_path: Path) -> None:
    with results_folder("s3://bucket/a", quiet) as (folder, _):
        results(folder)
    assert names(bucket / "a") == names(results(tmp_path / "like"))
    with results_folder("s3://bucket/a", quiet) as (folder, _):
        assert (folder / "manifest.json").read_text() == "manifest.json"
        assert not (folder / "trials").exists()


def test_a_checkpoint_in_a_bucket_is_written_read_and_published(bucket: Path, tmp_path: Path) -> None:
    place = Location("s3://bucket/c")
    with place.writing() as folder:
        checkpoint(folder, 7)
    assert names(bucket / "c") == {"contents.json", "curve.json", "policy/policy.json"}
    assert epoch_of(place) == 7
    with place.reading() as folder:
        assert names(folder) == names(bucket / "c")
    assert not folder.exists()
    (tmp_path / "policies").mkdir()
    publish(place, tmp_path / "policies" / "a")
    assert names(tmp_path / "policies") == {"a/policy.json", "a/curve.json"}


def test_a_location_is_what_its_text_says() -> None:
    bucket = Location("s3://bucket/a?region=eu-west-1&endpoint_override=localhost:9000")
    assert str(bucket / "b") == "s3://bucket/a/b?region=eu-west-1&endpoint_override=localhost:9000"
    assert bucket.local is None
    assert (bucket / "b").name == "b"
    assert pickle.loads(pickle.dumps(bucket)) == bucket
    assert Location("relative/place").local == Path("relative/place").absolute()


def checkpoint(folder: Path, epoch: int) -> Path:
    (folder / "policy").mkdir(parents=True, exist_ok=True)
    (folder / "policy" / "policy.json").write_text("{}")
    (folder / "curve.json").write_text("[]")
    sizes = {"policy/policy.json": 2, "curve.json": 2}
    (folder / "contents.json").write_text(json.dumps({"epoch": epoch, "sizes": sizes}))
    return folder


def test_the_latest_whole_checkpoint_is_found_over_all_runs_and_published(tmp_path: Path) -> None:
    trials = Location(f"file://{tmp_path}/trials")
    assert latest_checkpoint(trials, "a") is None
    checkpoint(tmp_path / "trials/run-001/a/checkpoint_000001", 25)
    checkpoint(tmp_path / "trials/run-002/a/checkpoint_000000", 20)
    torn = checkpoint(tmp_path / "trials/run-002/a/checkpoint_000001", 30)
    checkpoint(tmp_path / "trials/run-002/b/checkpoint_000001", 40)
    (torn / "curve.json").write_text("[")
    found = latest_checkpoint(trials, "a")
    assert found == trials / "run-001" / "a" / "checkpoint_000001"
    assert epoch_of(found) == 25
    assert epoch_of(torn) == -1
    (tmp_path / "policies").mkdir()
    publish(found, tmp_path / "policies" / "a")
    assert names(tmp_path / "policies") == {"a/policy.json", "a/curve.json"}


def test_a_folder_is_own_only_where_and_when_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    remember("/results/a", "2026-01-01T00:00:00+00:00")
    assert is_own("/results/a", "2026-01-01T00:00:00+00:00")
    assert not is_own("/results/b", "2026-01-01T00:00:00+00:00")
    assert not is_own("/results/a", "2026-01-02T00:00:00+00:00")  # another folder took its place
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    assert not is_own("/results/a", "2026-01-01T00:00:00+00:00")
