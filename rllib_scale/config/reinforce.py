"""How `decima` and `deeprm` are trained: REINFORCE on whole episodes, each workload played several times."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rllib_scale.config.base import Count, Model, NonNegative, Positive


class ReinforceConfig(Model):
    """Policy gradient of the methods `decima` and `deeprm`.

    An epoch plays `instances` workloads, each in `episodes` episodes that differ in the policy's draws alone, and makes
    one step of Adam. What an episode costs from a moment on is measured by the mean of the others from the same moment:
    arrivals are the same in all of them and cancel.
    """

    epochs: Count = 200
    instances: Count = Field(
        default=2, description="workloads an epoch, new ones each time; loads are spread evenly over them"
    )
    episodes: Annotated[int, Field(ge=2, le=1024)] = Field(
        default=8, description="of each workload, whose mean is the baseline"
    )
    objective: Literal["tasks", "workflows"] = Field(
        default="tasks",
        description="whose number in the system, integrated over time, is to be low: tasks of workflows that have "
        "arrived (mean response), or workflows (mean makespan; jobs in both papers)",
    )
    discount_s: Positive | None = Field(
        default=30.0, description="what comes later by so many seconds counts 1/e; null: all counts the same"
    )
    learning_rate: Positive = Field(default=3e-3, description="of Adam")
    gradient_clip: Positive = Field(default=1.0, description="global norm")
    entropy_coefficient: NonNegative = Field(
        default=0.01, description="at the beginning; from there a line to the final one"
    )
    final_entropy_coefficient: NonNegative = Field(default=0.0, description="after `epochs`")
    validation_instances: Count = Field(default=8, description="on which the policy is tried, without its draws")
    validate_every: Count = Field(
        default=10, description="epochs, and after the last; the weights that do best there are exported"
    )
