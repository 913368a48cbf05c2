"""`rllib-scale`, also as `python -m rllib_scale`: the command line, from the code in the current folder."""

import errno
import os
import signal


def _leave(number: int, frame: object) -> None:
    """Exit at Ctrl-C before any work began."""
    os.write(2, b"Interrupted.\n")
    os._exit(130)


signal.signal(signal.SIGINT, _leave)
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices gain nothing from a second thread

from rllib_scale.cli import main  # noqa: E402, after the handler: importing takes a second


def run() -> None:
    """Entry point of the installed command."""
    try:
        main(prog_name="rllib-scale")
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        os.write(2, b"Error: output: No space left on device\n")
        os._exit(2)  # without the final flush, which would fail again


if __name__ == "__main__":
    run()
