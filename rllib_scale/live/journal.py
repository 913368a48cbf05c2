"""What a live run has done so far, on disk: one line a round, from which it goes on when its driver has died."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

from rllib_scale.errors import UserError
from rllib_scale.files import write_json
from rllib_scale.live.flows import Flow
from rllib_scale.live.ledger import Ledger


class Journal:
    """The journal of one run in a folder of its own.

    Args:
        folder: made where it is missing.
        identity: what the run is. A folder belongs to one run.

    Raises:
        UserError: the folder holds another run, or one that is under way, or no journal of this program.
    """

    def __init__(self, folder: Path, identity: dict[str, Any]) -> None:
        self.folder, self._path = folder, folder / "journal.jsonl"
        about = folder / "run.json"
        if about.exists():
            try:
                found = json.loads(about.read_text(encoding="utf-8"))
            except ValueError:
                raise UserError(f"{about}: not readable as JSON") from None
            for key in identity:
                if not isinstance(found, dict) or found.get(key) != identity[key]:
                    was = found.get(key) if isinstance(found, dict) else None
                    raise UserError(
                        f"{folder}: holds another run, {key} {was!r} and not {identity[key]!r}; name another --results"
                    )
        else:
            write_json(about, identity)
        try:
            self._file = self._path.open("a+", encoding="utf-8")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{folder}: this run is under way in another process") from None
        except OSError as error:
            raise UserError(f"{self._path}: cannot be written ({error.strerror})") from None
        self._ended = self._started = self._failed = 0

    def restore(self, ledger: Ledger, flows: list[Flow]) -> tuple[float, dict[int, str]]:
        """Bring the ledger to where the journal ends.

        Tasks that ran then have failed: their driver did. Workflows that are not complete are expected anew.

        Returns:
            The clock [s], and why workflows were given up, by number.
        """
        clock = 0.0
        given_up: dict[int, str] = {}
        started: dict[int, tuple[Any, ...]] = {}
        for line in self._whole_lines():
            clock, ledger.counts = line["clock_s"], line["counts"]
            started |= {row[0]: tuple(row[1:]) for row in line["starts"]}
            for number, *row in line["ends"]:
                ledger.log[number] = tuple(row)
                ledger.ended.append(number)
            given_up |= {int(number): why for number, why in line["failed"].items()}
        for number, (workflow, task, row, tier, arrival_s, ready_s, start_s, transfer_s) in started.items():
            if number not in ledger.log:
                ledger.log[number] = (
                    *(workflow, task, row, tier, arrival_s, ready_s, start_s),
                    *(max(clock, start_s), "failed", transfer_s, 0.0),
                )
                ledger.ended.append(number)
        ledger.num_started = self._started = max(started, default=-1) + 1
        self._ended, self._failed = len(ledger.ended), len(given_up)
        for workflow, task, row, *_, outcome, _, _ in ledger.log.values():
            if outcome == "finished":
                flows[workflow].completed[task], flows[workflow].row[task] = True, row
        for flow in flows:
            if flow.done or flow.number in given_up:
                ledger.num_arrived += 1
                continue
            flow.missing = [int((~flow.completed[before]).sum()) for before in flow.predecessors]
            ledger.expect(flow)
        return clock, given_up

    def _whole_lines(self) -> list[dict[str, Any]]:
        """The rounds; a driver that died may have left half of a line, which is cut off."""
        self._file.seek(0)
        text = self._file.read()
        whole = text[: text.rfind("\n") + 1]
        if len(whole) < len(text):
            self._file.truncate(len(whole.encode()))
        try:
            return [json.loads(line) for line in whole.splitlines()]
        except ValueError:
            raise UserError(f"{self._path}: not a journal of this program") from None

    def write(self, ledger: Ledger, clock_s: float, failed: dict[int, BaseException]) -> None:
        """Add what has happened since the last time."""
        running = {a.number: a for a in ledger.running if a is not None}
        starts: list[list[Any]] = []
        for number in range(self._started, ledger.num_started):
            row = ledger.logged(running[number]) if number in running else ledger.log[number]
            starts.append([number, *row[:7], row[9]])
        ends = [[number, *ledger.log[number]] for number in ledger.ended[self._ended :]]
        gone = {str(number): str(why) for number, why in list(failed.items())[self._failed :]}
        if not (starts or ends or gone):
            return
        line = {"clock_s": clock_s, "counts": ledger.counts, "starts": starts, "ends": ends, "failed": gone}
        self._file.write(json.dumps(line, default=_plain) + "\n")
        self._file.flush()
        self._started, self._ended, self._failed = ledger.num_started, len(ledger.ended), len(failed)

    def close(self) -> None:
        """Let others have the folder."""
        self._file.close()


def _plain(value: Any) -> Any:
    """NumPy's scalars as Python's."""
    return value.item()
