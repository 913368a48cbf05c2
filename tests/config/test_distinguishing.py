"""What tells settings apart: two of them differ in it exactly where they differ."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rllib_scale.config import EnvConfig
from rllib_scale.config.identity import distinguishing, in_words, settings_in

LEAVES = st.sampled_from([None, True, False, 0, 1, 2, 0.5, "a", "1", "null", [], [1], {}])


@st.composite
def shapes(draw: st.DrawFn, depth: int = 2) -> dict[str, list[Any]]:
    """Key -> what may stand there: values, and below the top also shapes of a section with a name of its own."""
    shape: dict[str, list[Any]] = {}
    for key in draw(st.lists(st.sampled_from("uvwxyz"), min_size=1, max_size=4, unique=True)):
        shape[key] = draw(st.lists(LEAVES, min_size=1, max_size=3))
        for number in range(draw(st.integers(0, 2)) if depth else 0):
            shape[key].append({"name": [f"member{number}"]} | draw(shapes(depth - 1)))
    return shape


@st.composite
def drawn(draw: st.DrawFn, shape: dict[str, list[Any]]) -> dict[str, Any]:
    """Settings of a shape."""
    chosen = {key: draw(st.sampled_from(values)) for key, values in shape.items()}
    return {key: draw(drawn(value)) if isinstance(value, dict) and value else value for key, value in chosen.items()}


@given(shapes().flatmap(lambda shape: st.lists(drawn(shape), min_size=1, max_size=8)))
def test_settings_are_told_apart_exactly_where_they_differ(contents: list[dict[str, Any]]) -> None:
    told = distinguishing({number: settings_in(content) for number, content in enumerate(contents)})
    words = [in_words(told[number]) for number in range(len(contents))]
    for one, a in enumerate(contents):
        for other, b in enumerate(contents):
            same = json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)
            assert (words[one] == words[other]) == same


def test_a_setting_that_an_older_version_lacks_does_not_count() -> None:
    old, one, other = ({"seed": 1} | extra for extra in ({}, {"new": 1}, {"new": 2}))
    assert distinguishing({"old": old, "one": one}) == {"old": {}, "one": {}}
    assert distinguishing({"old": old, "one": one, "other": other}) == {
        "old": {},
        "one": {"new": 1},
        "other": {"new": 2},
    }


def test_a_cluster_that_is_scaled_differs_in_its_servers_alone_and_one_without_a_tier_in_its_tiers() -> None:
    env = EnvConfig()
    fewer = {"cluster": {"tiers": [tier.model_dump(mode="json") for tier in env.cluster.tiers[1:]]}}
    problems = [env, env.at_scale(37), EnvConfig.model_validate(fewer)]
    plain = [settings_in(each.model_dump(mode="json")) for each in problems]
    assert distinguishing(dict(enumerate(plain[:2]))) == {
        0: {"cluster.servers": env.cluster.num_servers},
        1: {"cluster.servers": 37},
    }
    assert distinguishing({0: plain[0], 2: plain[2]})[2]["cluster.tier_names"] == [
        tier.name for tier in env.cluster.tiers[1:]
    ]
