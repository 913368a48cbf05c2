"""Running a sweep on Ray: train what is unfinished, evaluate what is unevaluated, write the tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rllib_scale.clusters.placement import trials_at_once
from rllib_scale.clusters.session import ray_session
from rllib_scale.config.plan import Plan
from rllib_scale.errors import UserError
from rllib_scale.results.storage import Mirror
from rllib_scale.results.tables import read_manifest
from rllib_scale.sweeps.sweep import Sweep


def run_sweep(
    plan: Plan,
    folder: Path,
    address: str | None,
    say: Callable[[str], None],
    reuse: Sequence[Path] = (),
    mirror: Mirror | None = None,
    trust: bool = False,
) -> list[str]:
    """Run a sweep to its end, or resume it, and return one line for each training that failed.

    A sweep that is finished starts no Ray.

    Args:
        plan: that `check_plan` has accepted.
        folder: see `Sweep`.
        address: of a Ray cluster; None starts a local Ray.
        say: see `Sweep`.
        reuse: results folders whose finished trainings are reused.
        mirror: see `Sweep`.
        trust: resume from checkpoints, which are pickles, though this account did not make the folder; and import the
            code that given policies name.

    Raises:
        UserError: the folder belongs to another sweep or cannot be written, holds checkpoints of another account, or no
            training could ever start.
        KeyboardInterrupt: Ctrl-C. What is finished is kept, and the same call resumes.
    """
    for other in reuse:
        if read_manifest(other) is None:
            raise UserError(f"--reuse {other}: no results folder (it has no manifest.json)")
    sweep = Sweep(plan, folder, say, mirror)
    trusted = sweep.open() or trust
    if sweep.is_complete():
        say(f"Nothing is left to do: {len(plan.trials)} trainings and {len(plan.units)} evaluations are finished")
        if best := sweep.best():
            say(best)
        return []
    with ray_session(address, say=say):
        from rllib_scale.sweeps.evaluations import Evaluations
        from rllib_scale.sweeps.tuning import train

        at_once = trials_at_once(plan.sweep.resources, joined=address is not None)
        try:
            # This machine's CPUs are all trainings'; a cluster that was joined may have others, or grow.
            evaluations = Evaluations(sweep, trust, beside=None if at_once is None else 1)
            failures = train(sweep, reuse, trusted, at_once, evaluations)
            evaluations.finish()
            if best := sweep.best():
                say(best)
        except BaseException as error:
            with suppress(UserError, OSError):
                sweep.write_tables()
            if isinstance(error, OSError):
                raise UserError(
                    f"{sweep.home}: {error.strerror or error}; what is finished there is whole, "
                    "and the same command resumes"
                ) from None
            raise
        sweep.write_tables()
    return failures
