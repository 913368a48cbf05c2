"""One sweep at a time in a results folder: two real processes, on a disk and on a real S3 server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rllib_scale.errors import UserError
from rllib_scale.results.lock import LOCK, held
from rllib_scale.results.storage import Location
from s3_server import s3_server

BEAT_S, STALE_S = 0.2, 2.0
HOLDER = """
import sys, time
from rllib_scale.results.lock import held
from rllib_scale.results.storage import Location
with held(Location(sys.argv[1]), beat_s=0.2):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(home: Location, **options: Any) -> subprocess.Popen[str]:
    """A process that holds a folder until its input ends."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(home)], stdin=pipe, stdout=pipe, text=True, **options)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.fixture(params=["disk", "bucket"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Location]:
    if request.param == "disk":
        yield Location(str(tmp_path / "results"))
        return
    with s3_server() as bucket:
        yield Location(bucket % "results")


def test_a_second_sweep_is_refused_while_the_first_lives_and_takes_over_where_it_was_killed(home: Location) -> None:
    first = holder(home)
    lines: list[str] = []
    refusal = rf"another sweep runs there, process {first.pid} on .*A lock without a heartbeat for 2 s is taken over"
    with pytest.raises(UserError, match=refusal), held(home, lines.append, BEAT_S, STALE_S):
        pass
    assert f"process {first.pid} on " in lines[0]
    first.kill()
    first.wait()
    with held(home, lines.append, BEAT_S, STALE_S):
        assert len(lines) == 1, "a process of this machine that is gone is not waited for"
    assert LOCK not in home.files()

    second = holder(home)
    second.kill()
    second.wait()
    elsewhere = json.loads((home / LOCK).read()) | {"machine": "another"}  # where nobody sees its processes
    write(home, elsewhere)
    with held(home, lines.append, BEAT_S, STALE_S):
        assert lines[-1].endswith("is gone; its lock is taken over")
    assert LOCK not in home.files()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT as Python has it: commands of other tests in this process ignore a second one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_the_owner_of_a_lock_that_was_taken_over_ends(home: Location) -> None:
    """As after a race, or where its machine was cut off for a while."""
    lock = {"owner": "x", "host": "elsewhere", "machine": "m", "pid": 7, "since": "now", "beat": 0}

    def lose_it() -> None:
        with held(home, beat_s=BEAT_S):
            write(home, lock)
            time.sleep(60)  # which an interruption ends

    with pytest.raises(UserError, match=r"process 7 on elsewhere, .* took it over") as caught:
        lose_it()
    assert isinstance(caught.value.__context__, KeyboardInterrupt)
    assert json.loads((home / LOCK).read()) == lock


def test_an_owner_that_slept_is_told_though_the_one_that_took_over_has_ended(home: Location) -> None:
    sleeper = holder(home, stderr=subprocess.PIPE)
    (home / "manifest.json").write(b"{}")
    sleeper.send_signal(signal.SIGSTOP)
    with held(home, beat_s=BEAT_S, stale_s=STALE_S):
        pass
    assert LOCK not in home.files()
    sleeper.send_signal(signal.SIGCONT)
    _, error = sleeper.communicate(timeout=600)
    assert sleeper.returncode == 1, error
    said = "another process took it over while this one slept, and has ended; run this again"
    assert error.splitlines()[-1].endswith(f"UserError: {home}: {said}")
    assert LOCK not in home.files()


def write(home: Location, lock: dict[str, object]) -> None:
    """Replace the lock by another."""
    if home.local is not None:
        (home.local / LOCK).write_text(json.dumps(lock))
    else:
        filesystem, path = home._resolved
        with filesystem.open_output_stream(f"{path}/{LOCK}") as stream:
            stream.write(json.dumps(lock).encode())
