"""Running a sweep as a Ray job: the code in front of you goes to the cluster, its log and exit code come back."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import shlex
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rllib_scale.clusters.session import choose_auth_mode
from rllib_scale.config.plan import SweepConfig, expand
from rllib_scale.config.yaml_files import load_model
from rllib_scale.errors import UserError
from rllib_scale.results.storage import Location, is_uri

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

EXCLUDES = (
    *("results/", ".git/", ".venv/", "venv/", "build/", "dist/", "*.egg-info/", "__pycache__/"),
    *(".pytest_cache/", ".mypy_cache/", ".ruff_cache/", ".hypothesis/"),
    *(".env", "*.pem", "*.key", "auth_token"),
)
"""Never sent, beside what .gitignore names: results, what can be made again, and what may be secret."""
MAX_PACKAGE_BYTES = 100_000_000
RECONNECTIONS = 30
LAST_LINES = 10


@dataclass(frozen=True)
class SweepJob:
    """A sweep to be run by a cluster.

    Args:
        file: the sweep's YAML.
        results: where the results go: an absolute path that every node sees, or a URI.
        overrides: `key=value` settings.
        trust: whether to go on from checkpoints that another head wrote.
    """

    file: Path
    results: str
    overrides: tuple[str, ...] = ()
    trust: bool = False

    def entrypoint(self, working_dir: Path) -> str:
        """The command line on the head, in the folder that `working_dir` becomes there.

        Raises:
            UserError: the sweep is not valid, its file is not below the working directory, or the results would be
                written to a place that ends with the job.
        """
        expand(load_model(SweepConfig, self.file, self.overrides), str(self.file))
        if not working_dir.is_dir():
            raise UserError(f"--working-dir {working_dir}: no such folder")
        try:
            file = self.file.resolve().relative_to(working_dir.resolve())
        except ValueError:
            raise UserError(f"{self.file}: must be below the working directory {working_dir.resolve()}") from None
        if not is_uri(self.results) and not Path(self.results).is_absolute():
            raise UserError(
                f"--results {self.results}: must be an absolute path that every node sees, or an s3:// or gs:// URI"
            )
        Location(self.results)  # refuses an unknown scheme and credentials
        command = ["python", "-m", "rllib_scale", "sweep", file.as_posix(), "--address", "auto"]
        command += ["--results", self.results, *(["--trust"] if self.trust else [])]
        return shlex.join([*command, *(part for setting in self.overrides for part in ("--set", setting))])


def run_job(job: SweepJob, address: str, working_dir: Path, say: Callable[[str], None]) -> int:
    """Submit a sweep, or find it where it runs already, and follow it to its end.

    Args:
        job: the sweep.
        address: of the job server, http://HEAD:8265.
        working_dir: sent to the cluster, see `pack`.
        say: receives what is not the job's own output.

    Returns:
        The exit code of the job's command; 1 where it has none.

    Raises:
        UserError: see `SweepJob.entrypoint` and `pack`; or the server does not answer or refuses the token or the job.
    """
    entrypoint = job.entrypoint(working_dir)
    client = _connect(address)
    identity = {"rllib-scale": entrypoint}
    name = _running(client, identity)
    if name is None:
        variables = {"RAY_AUTH_MODE": os.environ["RAY_AUTH_MODE"], "PYTHONUNBUFFERED": "1"}
        with tempfile.TemporaryDirectory(prefix="rllib-scale-") as folder:
            package = {"working_dir": str(pack(working_dir, Path(folder)))}
            try:
                name = client.submit_job(
                    entrypoint=entrypoint, runtime_env=package | {"env_vars": variables}, metadata=identity
                )
            except RuntimeError as error:
                raise UserError(f"{address}: the job was not accepted ({_first_line(error)})") from None
        say(f"Submitted as {name}: {entrypoint}")
    else:
        say(f"Runs already as {name}: {entrypoint}")
    say(f"Ctrl-C leaves it running. To stop it: ray job stop --address {address} {name}")
    try:
        log = asyncio.run(_follow(client, name))
    except KeyboardInterrupt:
        say(f"{name} goes on without being watched.")
        raise
    details = client.get_job_info(name)
    if details.status == "SUCCEEDED":
        return 0
    say(f"{name} {details.status.lower()}: {_first_line(details.message)}")
    say("Its last lines:\n" + "\n".join(log.rstrip().splitlines()[-LAST_LINES:]))
    return details.driver_exit_code or 1


def pack(working_dir: Path, folder: Path) -> Path:
    """Pack the working directory, without EXCLUDES and what .gitignore names, into a file in `folder`.

    Raises:
        UserError: it is larger than MAX_PACKAGE_BYTES.
    """
    from ray._private.runtime_env.packaging import create_package

    package = folder / "working_dir.zip"
    create_package(str(working_dir.resolve()), package, include_gitignore=True, excludes=list(EXCLUDES))
    size = package.stat().st_size
    if size > MAX_PACKAGE_BYTES:
        with zipfile.ZipFile(package) as content:
            largest = sorted(content.infolist(), key=lambda info: -info.compress_size)[:3]
        shown = ", ".join(f"{info.filename} ({info.compress_size / 1e6:.0f} MB)" for info in largest)
        raise UserError(
            f"--working-dir {working_dir}: {size / 1e6:.0f} MB packed, valid: {MAX_PACKAGE_BYTES / 1e6:.0f} MB; "
            f"the largest: {shown}; name what is not needed in .gitignore"
        )
    return package


def _connect(address: str) -> JobSubmissionClient:
    if importlib.util.find_spec("aiohttp") is None:
        raise UserError("submit needs the extra `cluster`: pip install 'rllib-scale[cluster]'")
    if not address.startswith(("http://", "https://")):
        raise UserError(f"--address {address}: must be the job server's, such as http://127.0.0.1:8265")
    choose_auth_mode()
    for variable in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        os.environ.pop(variable, None)  # either would win over the address that was given
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    for chatty in ("dashboard.modules.job.sdk", "dashboard.modules.dashboard_sdk", "_private.runtime_env"):
        logging.getLogger(f"ray.{chatty}").setLevel(logging.ERROR)
    try:
        return JobSubmissionClient(address)
    except AuthenticationError as error:
        raise UserError(f"{address}: {_first_line(error)}") from None
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise UserError(f"{address}: no job server answers there ({_first_line(error)})") from None


def _running(client: JobSubmissionClient, identity: dict[str, str]) -> str | None:
    """The job that runs this very command already: two of them would write the same results."""
    for details in client.list_jobs():
        if details.metadata == identity and not details.status.is_terminal():
            return details.submission_id
    return None


async def _follow(client: JobSubmissionClient, name: str) -> str:
    """Print the log of a job as it grows, over broken connections, until the job has ended. Returns the whole log."""
    import aiohttp

    printed, failures = 0, 0
    while True:
        position = 0
        try:
            async for text in client.tail_job_logs(name):
                position += len(text)
                if position > printed:
                    _print(text[-(position - printed) :])
                    printed = position
                failures = 0
            ended = client.get_job_status(name).is_terminal()
            if ended:
                log = str(client.get_job_logs(name))
                _print(log[printed:])
                return log
        except (aiohttp.ClientError, OSError, RuntimeError) as error:
            failures += 1
            if failures > RECONNECTIONS:
                raise UserError(
                    f"lost the connection to the job server ({_first_line(error)}); {name} may go on"
                ) from None
        await asyncio.sleep(min(2.0, 0.2 * (failures + 1)))


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _first_line(error: Any) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
