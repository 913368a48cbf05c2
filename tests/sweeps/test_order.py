"""Which pending training an idle process gets."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("ray")

from rllib_scale.config.search import SearchConfig
from rllib_scale.sweeps.stopping import make_scheduler


def test_an_idle_process_goes_to_a_training_without_one() -> None:
    """Tune's own choice is the first that waits, and ends the process that is starting for it."""
    first, second, third = trials = [SimpleNamespace(name=name, status="PENDING") for name in "abc"]
    for processes, expected in (
        ({"a": "started"}, second),
        ({"a": "started", "b": "starting"}, second),
        ({"a": "started", "b": "started"}, third),
        ({}, first),
        ({"a": "started", "b": "started", "c": "started"}, None),
    ):
        controller = SimpleNamespace(
            get_trials=lambda: trials,
            _trial_to_actor=_Processes(processes),
            _actor_manager=SimpleNamespace(is_actor_started=lambda process: process == "started"),
        )
        assert make_scheduler(SearchConfig(), [], {}).choose_trial_to_run(controller) is expected
    first.status = "RUNNING"
    controller._trial_to_actor = _Processes({})
    assert make_scheduler(SearchConfig(), [], {}).choose_trial_to_run(controller) is second


class _Processes:
    """The process of each training, by its name."""

    def __init__(self, of_name: dict[str, str]) -> None:
        self.of_name = of_name

    def __contains__(self, trial: SimpleNamespace) -> bool:
        return trial.name in self.of_name

    def __getitem__(self, trial: SimpleNamespace) -> str:
        return self.of_name[trial.name]
