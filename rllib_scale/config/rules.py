"""Rules in a config: parameters and observability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rllib_scale.config.base import Model


class NoParameters(Model):
    """Parameters of a rule without any; the base of all others."""


@dataclass(frozen=True)
class HeuristicSpec:
    """Parameters and observability of a rule; a user-defined class has `takes`, `sees` and `plans`.

    Attributes:
        parameters: model of its parameters.
        sees: waiting tasks, or whole workflows with the demands of all their tasks.
        plans: whether it plans ahead, so that it cannot decide for one task at a time.
        knows: what else it observes, before anything arrives; only a problem with its workload says this.
        by_request: whether it decides for any waiting task at once, so that a router may ask it.
        reads: what it reads of a replica that a router cannot know.
    """

    parameters: type[NoParameters] = NoParameters
    sees: Literal["tasks", "workflows"] = "tasks"
    plans: bool = False
    knows: str = ""
    by_request: bool = True
    reads: str = ""

    @property
    def no_router(self) -> str:
        """Why no router of requests can ask it; empty: one can."""
        if self.knows:
            return f"knows {self.knows} in advance, which a scenario says and requests do not"
        if self.reads:
            return f"reads {self.reads}, which a router cannot know"
        if self.plans:
            return "plans ahead"
        return "" if self.by_request else "decides for all that waits together"
