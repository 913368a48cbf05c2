"""A reward and an encoder of a user that fail in the processes of environment runners alone."""

from __future__ import annotations

import sys

from rllib_scale.networks.pointer import SetPointer


def _fail() -> None:
    if sys.argv[0].endswith("default_worker.py"):
        raise LookupError("no such tariff")


def reward(step):
    _fail()
    return step.reward


class Encoder(SetPointer):
    calls = 0

    def encode(self, task, servers, empty):
        self.calls += 1
        if self.calls > 1:  # beyond the check of what an encoder gives
            _fail()
        return task, servers
