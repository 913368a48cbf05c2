"""How `context-price` is searched for: an evolution strategy (CMA-ES) over the weights of a price rule."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rllib_scale.config.base import Count, Model, Positive
from rllib_scale.config.schedulers import PriceParameters


class CMAConfig(Model):
    """CMA-ES of the method `context-price`; a generation is an epoch.

    A score is the mean over numbers of servers and instances of ln(objective [s]). All candidates of a generation play
    the same instances, and each generation others.
    """

    epochs: Count = Field(default=150, description="generations")
    population: Annotated[int, Field(ge=4)] = Field(default=20, description="candidates a generation")
    instances: Count = Field(
        default=12,
        description="episodes that each candidate plays; loads are spread evenly over them, and the more servers, the "
        "fewer of them, while each number of servers counts the same",
    )
    objective: Literal["response", "balanced"] = Field(
        default="balanced",
        description="what is to be low: the mean response; or it with 80 % and makespans, mean and 95th percentile, "
        "with 10 % each",
    )
    initial: PriceParameters | Literal["dual-price"] = Field(
        default=PriceParameters(),
        description="the rule that it begins with: price, at all times the same; or dual-price, with the prices of the "
        "load observed, for workloads to which the numbers of price are strange",
    )
    initial_step: Positive = Field(
        default=0.3,
        description="standard deviation of each weight at the beginning; in proportion more where those of its row are "
        "above 10",
    )
    validation_instances: Count = Field(default=32, description="on which the average of the search is tried")
    validate_every: Count = Field(
        default=10, description="generations, and after the last; the weights that do best there are exported"
    )
