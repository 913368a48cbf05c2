"""Running a sweep on Ray: unfinished trainings, unfinished evaluations, tables."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from rllib_scale.clusters.placement import trials_at_once
from rllib_scale.clusters.session import ray_session
from rllib_scale.config.plan import Plan
from rllib_scale.errors import UserError, counted
from rllib_scale.results.lock import held
from rllib_scale.results.storage import Location
from rllib_scale.results.tables import read_manifest
from rllib_scale.sweeps.sweep import Sweep


def run_sweep(
    plan: Plan,
    home: Location | Path,
    address: str | None,
    say: Callable[[str], None],
    reuse: Sequence[Location] = (),
    trust: bool = False,
) -> list[str]:
    """Run or resume a sweep to its end, and return one line for each training and evaluation that failed.

    A finished sweep does not start Ray.

    Args:
        plan: a plan that `check_plan` has accepted.
        home: see `Sweep`.
        address: of a Ray cluster; None starts a local Ray.
        say: see `Sweep`.
        reuse: results whose finished trainings are reused.
        trust: resume from checkpoints, which are pickles, in a folder of another account; and import the code that
            given policies name.

    Raises:
        UserError: the folder belongs to another sweep, or cannot be written; another sweep runs there (see `held`); it
            holds checkpoints of another account; or no training could ever start.
        KeyboardInterrupt: Ctrl-C or SIGTERM. Finished parts are kept, and the same call resumes.
    """
    for other in reuse:
        if read_manifest(other) is None:
            raise UserError(f"--reuse {other}: no results folder (it has no manifest.json)")
    sweep = Sweep(plan, home, say)
    with ExitStack() as stack:
        stack.enter_context(held(sweep.home, say))
        trusted = sweep.open() or trust
        if sweep.is_complete():
            trainings, units = counted(len(plan.trials), "training"), counted(len(plan.units), "evaluation")
            say(f"Nothing is left to do: {trainings} and {units} are finished")
            if best := sweep.best():
                say(best)
            return []
        try:
            stack.enter_context(ray_session(address, say=say))
        except SystemExit:  # SIGTERM while Ray started, which sets its own handler
            raise KeyboardInterrupt from None
        interrupt_on_sigterm()
        from rllib_scale.sweeps.evaluations import Evaluations
        from rllib_scale.sweeps.tuning import train

        at_once = trials_at_once([trial.config.resources for trial in plan.trials], joined=address is not None)
        try:
            # Trainings occupy all CPUs of this machine; a cluster may have others, or grow.
            evaluations = Evaluations(sweep, trust, beside=None if at_once is None else 1)
            failures = train(sweep, reuse, trusted, at_once, evaluations)
            evaluations.finish()
            failures += evaluations.failed
            if best := sweep.best():
                say(best)
        except BaseException as error:
            with suppress(UserError, OSError):
                sweep.close()
            if isinstance(error, OSError):
                raise UserError(
                    f"{sweep.home}: {error.strerror or error}; finished parts there are complete, "
                    "and the same command resumes the sweep"
                ) from None
            raise
        sweep.close()
    return failures


def interrupt_on_sigterm() -> None:
    """Let SIGTERM, which spot machines and `ray job stop` send, act as Ctrl-C in this process."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
