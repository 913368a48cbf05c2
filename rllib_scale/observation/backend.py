"""Where decisions come from and go to: a simulated cluster, or a live one. A scheduler knows neither."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from rllib_scale.observation.snapshot import Snapshot


class Answer(NamedTuple):
    """What is to become of a task that waits, or of a task that runs."""

    workflow: int
    task: int  # index in the workflow
    server: int  # on which it starts, or which it waits for; PASS or STOP of observation.answers


class Backend(Protocol):
    """A cluster that is scheduled in decision rounds: wait until a task waits, answer for some tasks, wait again.

    Of a dispatcher, for example::

        while (snapshot := backend.wait()) is not None:
            for answer in dispatcher.dispatch(snapshot):
                outcome = backend.apply(Answer(*answer))
    """

    def wait(self) -> Snapshot | None:
        """End the round, if one is open, and let time pass until a task waits; None: nothing will any more."""

    def apply(self, answer: Answer) -> str:
        """Carry out an answer now; what comes of it is one of observation.answers.OUTCOMES.

        An answer that cannot be carried out (`busy`, `no_fit`) changes nothing.

        Raises:
            ValueError: no such task waits; or, where it is to be stopped, runs.
        """
