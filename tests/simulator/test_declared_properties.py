"""What a tier declares is known wherever servers are: compiled arrays, snapshots and views, simulated and live."""

from __future__ import annotations

import numpy as np
import pytest

from rllib_scale.config import EnvConfig
from rllib_scale.config.cluster import PROPERTIES
from rllib_scale.observation.feature_sets import FEATURE_SETS, static_features
from rllib_scale.simulator.cluster import SHORT
from rllib_scale.simulator.engine import Engine
from rllib_scale.simulator.event_engine import EventEngine
from schedulers.instances import SEVERAL

ENV = EnvConfig.model_validate(SEVERAL)


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_property_of_a_tier_is_one_of_each_of_its_servers(name: str) -> None:
    engine, live = Engine(ENV), EventEngine(ENV)
    engine.reset([1], [0])
    declared = [getattr(tier, name) for tier in ENV.cluster.tiers for _ in range(tier.count)] + [0] * 2
    for servers in (engine.snapshot(), engine.view(), live.snapshot(), live.view()):
        assert servers.properties[SHORT.get(name, name)].tolist() == declared


@pytest.mark.parametrize("features", FEATURE_SETS.values(), ids=lambda features: features.name)
def test_static_features_are_those_of_an_empty_cluster_from_the_start(features) -> None:  # type: ignore[no-untyped-def]
    observation = ENV.observation.model_copy(update={"feature_set": features.name})
    engine = Engine(ENV.model_copy(update={"observation": observation}))
    engine.reset([1], [0])
    columns, values = static_features(features, engine.snapshot().properties, observation)
    shown = engine.observation[0, features.head(engine.candidates) :].reshape(-1, features.server_dim)
    assert {features.server[column].name for column in columns} == {"capacity", "memory"}
    np.testing.assert_array_equal(shown[:, columns], values.astype(np.float32))
