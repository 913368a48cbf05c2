"""The command line. Thin: every command reads its input, calls one function and prints the result."""

from __future__ import annotations

import errno
import os
import signal
import sys
from typing import Any

import click

from rllib_scale import __version__
from rllib_scale.cli import (
    about,
    convert,
    explain,
    live,
    play,
    policies,
    replicas,
    results,
    sweeps,
    tryout,
    workloads,
)
from rllib_scale.cli.terminal import errors
from rllib_scale.errors import UserError


class Commands(click.Group):
    """Turns bad input into one line and exit code 2, Ctrl-C into one line and 130."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        signal.signal(signal.SIGINT, _interrupt_once)
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except (UserError, click.UsageError) as error:
            message = error.format_message() if isinstance(error, click.UsageError) else str(error)
            errors.print(f"Error: {' '.join(message.splitlines())}", style="red", markup=False)
            ctx.exit(2)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.ENAMETOOLONG):
                raise
            if error.errno == errno.ENOSPC:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the final flush would fail again
            errors.print(f"Error: {error.filename or 'output'}: {error.strerror}", style="red", markup=False)
            ctx.exit(2)
        except KeyboardInterrupt:
            errors.print(_interrupted(ctx.invoked_subcommand or ""), markup=False)
            ctx.exit(130)


RESUMED = ("sweep", "reproduce", "train", "fetch")
"""Commands that go on from what is finished."""


def _interrupted(command: str) -> str:
    """The line after Ctrl-C in a command."""
    if command in RESUMED:
        return "Interrupted. What was finished is kept; run the same command again."
    return f"Interrupted. {command} keeps nothing but files that it says it wrote; run it again from the beginning."


def _interrupt_once(number: int, frame: object) -> None:
    """End in order after Ctrl-C, and ignore a second one meanwhile."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


COMPLETION = (
    'Completion by TAB: eval "$(_RLLIB_SCALE_COMPLETE=bash_source rllib-scale)" in ~/.bashrc; for zsh and fish with '
    "zsh_source and fish_source."
)


@click.group(
    cls=Commands,
    epilog=COMPLETION,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="rllib-scale")
def main() -> None:
    """Train, sweep and evaluate schedulers of agentic workflows (SCALE, arXiv:2606.06820) on Ray."""
    # Before torch and BLAS start: one compute thread a process, parallelism comes from processes.
    from rllib_scale.clusters.session import ONE_THREAD

    os.environ.update(ONE_THREAD)


for _command in (
    sweeps.sweep,
    sweeps.reproduce,
    sweeps.validate,
    sweeps.train,
    results.fetch,
    play.evaluate,
    play.simulate,
    explain.explain,
    tryout.tryout,
    play.bounds,
    policies.zoo,
    policies.export,
    live.execute,
    workloads.import_workload,
    workloads.fit_workload,
    replicas.fit_replica,
    results.report,
    results.status,
    results.dashboard,
    convert.convert,
    about.methods,
    about.schedulers,
    about.scenarios,
    about.presets,
    about.schema,
    about.doctor,
):
    main.add_command(_command)
