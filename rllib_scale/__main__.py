"""`rllib-scale`, also as `python -m rllib_scale`: the command line, from the code in the current folder."""

import os
import signal


def _leave(number: int, frame: object) -> None:
    """Ctrl-C before anything is read or done: there is nothing to end in order."""
    os.write(2, b"Interrupted.\n")
    os._exit(130)


signal.signal(signal.SIGINT, _leave)
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # our matrices are small: a second thread would spin, not help

from rllib_scale.cli import main  # noqa: E402, its imports take a second in which Ctrl-C is likely


def run() -> None:
    """What the installed command calls."""
    main(prog_name="rllib-scale")


if __name__ == "__main__":
    run()
