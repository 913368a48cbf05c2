"""Code in the processes of the servers; it imports little, as there are many of them."""

from __future__ import annotations

import ctypes
import pickle
import threading
import time
import traceback
from typing import Any, NamedTuple

import numpy as np
import ray


class Report(NamedTuple):
    """Outcomes of a call."""

    seconds: float
    error: BaseException | None


class Packed(NamedTuple):
    """A function, pickled."""

    content: bytes


class RemoteError(Exception):
    """Exception of a task that cannot travel itself: its traceback as text."""


class Stopped(BaseException):
    """Raised inside a call to end it."""


class Server:
    """The actor: runs calls, each in the thread that Ray gives it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: dict[int, int] = {}

    @ray.method(num_returns=2, enable_task_events=False)
    def run(self, header: bytes, *values: Any) -> tuple[Any, Any]:
        """Run a function; returns a Report and what it returned.

        Args:
            header: pickled: number of the attempt, for `stop`; the function, pickled, or None where it is the first of
                the values; names of the last values, which are passed by keyword.
            values: arguments.
        """
        attempt, content, names = pickle.loads(header)
        start, output, error = time.perf_counter(), None, None
        try:
            with self._lock:
                self._threads[attempt] = threading.get_ident()
            split = len(values) - len(names)
            try:
                called, *plain = values[:split] if content is None else (pickle.loads(content), *values[:split])
                output = called(*plain, **dict(zip(names, values[split:], strict=True)))
            finally:
                with self._lock:
                    thread = self._threads.pop(attempt)
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None)  # one that comes too late
        except BaseException as raised:  # any exception belongs to the task
            error = _portable(raised)
        return Report(time.perf_counter() - start, error), output

    @ray.method(concurrency_group="control", enable_task_events=False)
    def stop(self, attempt: int) -> None:
        """Raise Stopped in a call that runs; code outside of Python ends first."""
        with self._lock:
            if attempt in self._threads:
                ident = ctypes.c_ulong(self._threads[attempt])
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(Stopped))


def _portable(error: BaseException) -> BaseException:
    """The exception with its traceback as a note, or a RemoteError where it does not survive pickling."""
    text = "".join(traceback.format_exception(error))
    try:
        copy = pickle.loads(pickle.dumps(error))
        if type(copy) is not type(error):
            raise TypeError
        error.add_note(f"On its server:\n{text}")
        error.__traceback__ = error.__cause__ = error.__context__ = None
    except Exception:
        return RemoteError(text)
    return error


def sleep_for(seconds: float, num_bytes: int, *inputs: Any) -> np.ndarray:
    """A surrogate task: sleep, and return a number of bytes, which the successors get as inputs."""
    time.sleep(seconds)
    return np.zeros(num_bytes, dtype=np.uint8)
