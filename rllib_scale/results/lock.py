"""The lock of a results folder: one sweep at a time writes there, from any machine.

The lock is a file of the results, on a disk, on NFS or in a bucket. Its owner renews it every BEAT_S. Another sweep
that finds one waits for a heartbeat: it is refused when the lock is renewed, and takes the lock over after STALE_S
without. No clocks are compared. A lock of this machine whose process is gone is taken over at once.

pyarrow offers no exclusive write to a store, so in a bucket the owner writes, waits SETTLE_S and reads. An owner that
finds another process's lock, or none, when it renews its own interrupts its process: even after a race, two sweeps go
on together for BEAT_S only. It finds none where another took the lock over while this machine slept, and has ended.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rllib_scale.errors import UserError
from rllib_scale.results.storage import Location

LOCK = ".lock.json"
BEAT_S = 10.0
"""Between two heartbeats of the owner."""
STALE_S = 60.0
"""Without a heartbeat, after which another sweep takes the lock."""
SETTLE_S = 1.0
"""After which a lock that was written into a bucket is read."""


@contextmanager
def held(
    home: Location | Path,
    say: Callable[[str], None] = lambda line: None,
    beat_s: float = BEAT_S,
    stale_s: float = STALE_S,
) -> Iterator[None]:
    """Make a results folder, and keep any other sweep out of it for the duration of a block.

    Args:
        home: the results folder, as all machines see it.
        say: receives a line before it waits for the owner of a lock.
        beat_s: see BEAT_S.
        stale_s: see STALE_S.

    Raises:
        UserError: it cannot be written, another sweep holds it, or another took it over while the block ran.
    """
    lock = _Lock(Location(str(home)), beat_s, stale_s)
    lock.acquire(say)
    ended = threading.Event()
    beat = threading.Thread(target=lock.keep, args=(ended,), daemon=True)
    beat.start()
    try:
        yield
    finally:
        ended.set()
        beat.join()
        lock.release()
        if lock.lost:
            raise UserError(f"{home}: {lock.lost}")


class _Lock:
    """The lock file of one results folder, as one process sees it."""

    def __init__(self, home: Location, beat_s: float, stale_s: float) -> None:
        self.home = home
        self.beat_s, self.stale_s = beat_s, stale_s
        self.lost = ""
        """Who took it over, and what to do now; empty if it was not taken over."""
        self._own: dict[str, Any] = {
            "owner": secrets.token_hex(8),
            "host": socket.gethostname(),
            "machine": _machine(),
            "pid": os.getpid(),
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
            "beat": 0,
        }

    def acquire(self, say: Callable[[str], None]) -> None:
        """Become the owner; see `held`."""
        if self.home.local is not None:
            _check_writable(self.home.local)
        while not self._create():
            found = self._read()
            if found is not None and not _is_gone(found):
                self._await_death(found, say)
            self._remove(found)

    def keep(self, ended: threading.Event) -> None:
        """Renew the lock until `ended`; interrupt this process if another one has it."""
        main = threading.main_thread().ident
        assert main is not None
        while not ended.wait(self.beat_s):
            self._look()
            if self.lost:
                if not ended.is_set():  # again at each beat, because pyarrow swallows one while it writes
                    signal.pthread_kill(main, signal.SIGINT)
                continue
            self._own["beat"] += 1
            with suppress(OSError, UserError):  # a disk or a store that is away for a while
                self._write()

    def release(self) -> None:
        """Remove the lock if it is still this process's own."""
        self._look()
        if not self.lost:
            self._remove(self._read())

    def _look(self) -> None:
        """Note whether another process has the lock, or had it and has ended."""
        try:
            found = json.loads((self.home / LOCK).read())
        except FileNotFoundError:
            if "manifest.json" in self.home.files():  # else the results are gone, too, which is said elsewhere
                self.lost = "another process took it over while this one slept, and has ended; run this again"
        except (OSError, ValueError):
            pass  # a disk or a store that is away for a while
        else:
            if found["owner"] != self._own["owner"]:
                self.lost = f"{_described(found)} took it over; wait for its end, then run this again"

    def _await_death(self, found: dict[str, Any], say: Callable[[str], None]) -> None:
        """Wait until the owner of a lock has sent no heartbeat for `stale_s`.

        Raises:
            UserError: it showed one.
        """
        owner = _described(found)
        say(f"{self.home}: {owner} has its lock; waiting {self.stale_s:g} s at most for a heartbeat")
        until = time.monotonic() + self.stale_s
        while time.monotonic() < until:
            time.sleep(min(0.5, self.stale_s / 10))
            now = self._read()
            if now is None:
                return
            if now != found:
                raise UserError(
                    f"{self.home}: another sweep runs there, {_described(now)}; wait for its end, or give another "
                    f"--results. A lock without a heartbeat for {self.stale_s:g} s is taken over"
                )
        say(f"{self.home}: {owner} is gone; its lock is taken over")

    def _create(self) -> bool:
        """Write the lock where there is none; returns whether it is this process's own."""
        if self._read() is not None:
            return False
        if self.home.local is not None:
            whole = self._temporary()
            try:
                os.link(whole, self.home.local / LOCK)  # atomic on NFS, too
            except FileExistsError:
                return False
            except OSError:
                pass  # a disk without links is written as a store
            else:
                return True
            finally:
                whole.unlink()
        self._write()
        time.sleep(SETTLE_S)
        found = self._read()
        return found is not None and found["owner"] == self._own["owner"]

    def _write(self) -> None:
        """Replace the lock. A folder that is gone is not recreated."""
        if self.home.local is not None:
            self._temporary().replace(self.home.local / LOCK)
            return
        (self.home / LOCK).write(json.dumps(self._own).encode())

    def _temporary(self) -> Path:
        assert self.home.local is not None
        path = self.home.local / f"{LOCK}.{self._own['owner']}.tmp"
        path.write_text(json.dumps(self._own), encoding="utf-8")
        return path

    def _read(self) -> dict[str, Any] | None:
        """The lock; None if there is none, or if it cannot be read."""
        try:
            return dict(json.loads((self.home / LOCK).read()))
        except (OSError, ValueError):
            return None

    def _remove(self, found: dict[str, Any] | None) -> None:
        """Remove a lock, unless another process has replaced it meanwhile."""
        if self._read() == found:
            with suppress(OSError):
                self.home.remove(LOCK)


def _check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"{folder}: the results folder cannot be written ({error.strerror})") from None


def _machine() -> str:
    """Identity of the machine since its start and of the container, in which process numbers are unique."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return socket.gethostname()


def _is_gone(lock: dict[str, Any]) -> bool:
    """Whether a lock is of a process of this machine that has ended."""
    if lock["machine"] != _machine():
        return False
    try:
        os.kill(lock["pid"], 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it is of another account
    return False


def _described(lock: dict[str, Any]) -> str:
    return f"process {lock['pid']} on {lock['host']}, since {lock['since']}"
