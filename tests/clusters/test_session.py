"""A local Ray that does not start in time is started again, and leaves nothing behind, whatever ends it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import pytest

pytestmark = pytest.mark.ray
LATE = "RAY_gcs_server_port_wait_time_s"
"""Ray waits so long for the port of its first process; a start with 0 is never in time."""
SCRIPT = f"""
import os, pathlib, subprocess
import ray
from rllib_scale.clusters.session import ray_session
from rllib_scale.errors import UserError

folder = pathlib.Path(os.environ["RAY_TMPDIR"]) / "ray"

def left():
    own = subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True, text=True).stdout.split()
    return sorted(path.name for path in folder.iterdir()), len(own)

def say(line):
    print(line)
    os.environ.pop({LATE!r} if "again" in line and "until" not in os.environ else "", None)

current = folder / "ray_current_cluster"
folder.mkdir()
current.write_text("192.0.2.1:6379")  # of another Ray
os.environ |= {{{LATE!r}: "0", "until": "it gives up"}}
try:
    with ray_session(say=say):
        pass
except UserError as error:
    print(error)
print(*left())
del os.environ["until"]
try:
    with ray_session(num_cpus=1, say=say):
        current.write_text(ray.get_runtime_context().gcs_address)
        raise KeyboardInterrupt
except KeyboardInterrupt:
    print(*left())
"""


def test_a_late_ray_starts_again_and_an_ended_one_leaves_what_is_not_its_own() -> None:
    with tempfile.TemporaryDirectory(prefix="rs", dir="/tmp") as folder:  # names of sockets have at most 107 bytes
        environment = os.environ | {"HOME": folder, "RAY_TMPDIR": folder}
        words = [sys.executable, "-c", SCRIPT]
        done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=1800)
    assert done.returncode == 0, done.stderr
    starts, again = "starting Ray on this machine", "Ray has not started in time, as happens on a busy machine"
    lines = done.stdout.splitlines()
    assert [line.partition(";")[0] for line in lines[:3]] == [starts, again, again]
    assert lines[3].startswith("Ray on this machine: did not start in 3 attempts (Timed out")
    assert lines[4] == "['ray_current_cluster'] 0", "what is another's stays"
    assert [line.partition(";")[0] for line in lines[5:7]] == [starts, again]
    assert lines[7:] == ["[] 0"], "the next attempt was in time"
