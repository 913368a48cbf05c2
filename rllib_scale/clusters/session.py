"""Ray sessions: a local Ray or a running cluster, without notices and with one compute thread per process."""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rllib_scale import plugins
from rllib_scale.errors import UserError

ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")}

ASK = "import sys, ray; ray._raylet.GcsClient(address=sys.argv[1])"
"""Python code that ends well if the head of a Ray cluster answers at an address."""
ASK_TIMEOUTS = {f"RAY_gcs_rpc_server_{name}_timeout_s": "2" for name in ("connect", "reconnect")}
CONNECT_TIMEOUT_S = 5.0
STARTS = 3
"""Attempts to start a local Ray, whose processes Ray awaits for 30 s each time."""
NO_TOKEN = (
    "the cluster's token is missing or another; put it into ~/.ray/auth_token, name its file in RAY_AUTH_TOKEN_PATH, "
    "or set RAY_AUTH_MODE=disabled for an open cluster"
)


def quieten() -> None:
    """Silence RLlib's and Tune's notices, but not their errors, in the driver and in every worker."""
    os.environ.update(ONE_THREAD)
    for name in ("ray.rllib", "ray.tune", "ray._common.deprecation", "ray.data"):
        logging.getLogger(name).setLevel(logging.ERROR)


def choose_auth_mode() -> None:
    """Make Ray authenticate by token unless RAY_AUTH_MODE is set. Call it before Ray starts.

    Without a mode and a token, Ray leaves a cluster open. A client with a token also reaches an open cluster.
    """
    if "RAY_AUTH_MODE" in os.environ:
        return
    os.environ["RAY_AUTH_MODE"] = "token"
    if "ray" in sys.modules:
        from ray._raylet import Config  # type: ignore[attr-defined]

        Config.initialize("")  # reads the environment again


def keep_raylets_unheard() -> None:
    """Stop Ray from printing notices of nodes and processes among the lines of a command.

    Progress counts restarts after errors, and the sweep ends with the error of each training that failed.
    """
    from ray._private import worker

    worker.print_to_stdstream = lambda data, ignore_prefix: None


def keep_credentials_out_of_logs() -> None:
    """Stop Tune from sending the driver's AWS keys to the trials, where every node would write them into a log.

    A node reads a bucket with its own role or profile. Processes on this machine inherit the environment.
    """
    from ray.tune.execution import class_cache

    class_cache.ENV_VARS_TO_PROPAGATE.difference_update(
        {name for name in class_cache.ENV_VARS_TO_PROPAGATE if name.startswith("AWS_")}
    )


def keep_trackers_unloaded() -> None:
    """Stop Tune from importing every installed tracker, for seconds each, to count which ones are used."""
    from ray.air._internal import usage

    usage.tag_callbacks = lambda callbacks: False


def _worker_environment() -> dict[str, Any]:
    """Environment of every worker: one thread, no notices, and the user code that this process has loaded."""
    environment: dict[str, Any] = {"env_vars": dict(ONE_THREAD), "worker_process_setup_hook": quieten}
    return environment | ({"py_modules": plugins.sources()} if plugins.sources() else {})


def _check_answers(address: str) -> None:
    """Refuse an address where no cluster answers. Ray would try for two minutes, and print each attempt.

    Raises:
        UserError: no address; nothing answers there, or not the head of a cluster, or it requires another token.
    """
    from ray._private.services import canonicalize_bootstrap_address

    port = re.fullmatch(r"[^/\s]+:(\d{1,5})", address)
    if address != "auto" and (port is None or int(port[1]) >= 2**16):
        raise UserError(
            f"Ray at {address}: expected HOST:PORT, or auto on a node of the cluster; from elsewhere, "
            "`ray job submit` runs the command there (docs/cluster.md)"
        )
    found = canonicalize_bootstrap_address(address)
    if found is None:
        return  # `auto` where there is none, of which Ray says so at once
    host, _, number = found.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(number)), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise UserError(f"Ray at {address}: no cluster answers ({error.strerror or error})") from None
    # Where something else answers, a client of Ray ends its process.
    command = [sys.executable, "-P", "-c", ASK, found]
    asked = subprocess.run(command, env=os.environ | ASK_TIMEOUTS, capture_output=True, text=True)
    if asked.returncode:
        no_token = "authentication token" in asked.stderr.lower()
        what = NO_TOKEN if no_token else "what answers is not the head of a Ray cluster"
        raise UserError(f"Ray at {address}: {what}")


@contextmanager
def ray_session(
    address: str | None = None, num_cpus: int | None = None, say: Callable[[str], None] | None = None
) -> Iterator[float]:
    """A Ray session for the duration of a block; yields the CPUs of the largest node.

    Args:
        address: of a running cluster; None starts a local Ray that ends with the block.
        num_cpus: of the local Ray; None takes all cores.
        say: receives a line before Ray starts.

    Raises:
        UserError: no cluster answers at the address, the token that it requires is missing, or no local Ray starts.
    """
    quieten()
    choose_auth_mode()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_task_oom_retries", "3")  # of an evaluation; by default Ray retries without limit
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")  # Tune's tables would hide the lines of progress
    os.environ["RAY_IGNORE_UNHANDLED_ERRORS"] = "1"  # of a checkpoint for which a stopped Tune no longer waits
    import ray

    if ray.is_initialized():
        yield _largest_node()
        return
    if say is not None:
        say(f"joining Ray at {address}" if address else "starting Ray on this machine")
    keep_raylets_unheard()
    own = address in (None, "local")
    with _local_ray(num_cpus, say or (lambda line: None)) if own else _joined(str(address)):
        yield _largest_node()


@contextmanager
def _joined(address: str) -> Iterator[None]:
    """A connection to a running cluster, for a block.

    Raises:
        UserError: see `ray_session`.
    """
    import ray
    from ray.exceptions import AuthenticationError

    try:
        _check_answers(address)
        ray.init(address=address, **_quietly())
    except AuthenticationError:
        raise UserError(f"Ray at {address}: {NO_TOKEN}") from None
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(f"Ray at {address}: {' '.join(str(error).split())}") from None
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _local_ray(num_cpus: int | None, say: Callable[[str], None]) -> Iterator[None]:
    """A Ray on this machine, for a block. Its processes and files end with it, also if its start was interrupted.

    Raises:
        UserError: it cannot start, or has not after STARTS attempts.
    """
    import ray
    from ray._private import node

    nodes: list[Any] = []

    class Remembered(node.Node):
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            nodes.append(self)
            super().__init__(*arguments, **settings)

    try:
        for start in range(1, STARTS + 1):
            try:
                with patch.object(node, "Node", Remembered):
                    # Without an address it would join a cluster that runs on this machine.
                    ray.init(address="local", num_cpus=num_cpus, include_dashboard=False, **_quietly())
                break
            except Exception as error:
                why = " ".join(str(error).split())
                if "timed out" not in why.lower():
                    raise UserError(f"Ray on this machine: {why}") from None
                if start == STARTS:
                    raise UserError(
                        f"Ray on this machine: did not start in {STARTS} attempts ({why}); is the machine very busy, "
                        "or short of memory?"
                    ) from None
                say("Ray has not started in time, as happens on a busy machine; starting it again")
                _end(nodes.pop())
        yield
    finally:
        ray.shutdown()
        for each in nodes:
            _end(each)


def _end(own: Any) -> None:
    """End what still runs of a local Ray, and remove its files and its names in Ray's temporary folder."""
    if not hasattr(own, "_session_dir"):
        return  # interrupted before it had started anything
    own.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)
    session = Path(own.get_session_dir_path())
    shutil.rmtree(session, ignore_errors=True)
    latest, current = (session.parent / name for name in ("session_latest", "ray_current_cluster"))
    with suppress(OSError):
        if os.readlink(latest) == str(session):
            latest.unlink()
    with suppress(OSError, AssertionError):  # without an address yet
        if current.read_text(encoding="utf-8").strip() == own.gcs_address:
            current.unlink()


def _quietly() -> dict[str, Any]:
    """Arguments of `ray.init` for any Ray."""
    return {"logging_level": "error", "log_to_driver": False, "runtime_env": _worker_environment()}


def _largest_node() -> float:
    import ray

    return max((node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]), default=0.0)
