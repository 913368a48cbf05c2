"""An error in user code ends a training with its own message, also in the process of an environment runner."""

from __future__ import annotations

from typing import Any

import pytest

from local_ray import LOCAL_RAY
from marks import slow
from rl.learned import train
from rllib_scale import plugins
from rllib_scale.errors import UserError

pytestmark = LOCAL_RAY
REWARD = {"algorithm": {"reward": plugins.pinned("reward", "rl.broken:reward")}}


@pytest.mark.parametrize(
    "settings",
    [
        REWARD,
        slow(REWARD | {"rllibs": ["runner"]}),
        slow(REWARD | {"method": "dqn"}),
        slow({"network": {"encoder": plugins.pinned("encoder", "rl.broken:Encoder")}}),
    ],
    ids=str,
)
def test_an_error_in_a_remote_runner_ends_the_training_as_a_local_one(build: Any, settings: dict[str, Any]) -> None:
    algorithm = build(resources={"env_runners": 1}, **settings)
    with pytest.raises((UserError, LookupError, RuntimeError), match="LookupError: no such tariff") as caught:
        train(algorithm, 1)
    (note,) = caught.value.__notes__
    assert "in the process of environment runner 1" in note
    assert "broken.py" in note, "where it happened"
