"""Names of any settings: two things have the same name exactly if they are the same."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from artificial_results import dimensions_of, episode_row, loaded
from rllib_scale.config import SCENARIOS, EnvConfig
from rllib_scale.config.training import SRRConfig

TIERS = [tier.model_dump(mode="json") for tier in EnvConfig().cluster.tiers]
ENVS = [SCENARIOS[name].env.model_dump(mode="json") for name in ("paper", "steady-0.7", "energy")]
OF_TRAININGS: dict[str, list[Any]] = {
    "algorithm.gamma": [0.9, 0.99],
    "algorithm.problems": [None, {"servers": [8, 16]}, {"servers": [8], "offered_load": None}],
    "algorithm.initial_policy": [None, "zoo:scale#sha256=0123", "zoo:crossattn#sha256=4567"],
    "network.embedding_dim": [16, 32],
    "network": [{"name": "custom", "encoder": name, "embedding_dim": 16} for name in ("mine:A", "mine:B")],
    "srr": [None, SRRConfig(lambda_kl=0.1).model_dump(mode="json")],
    "srr.lambda_kl": [0.1, 0.2],
    "env": ENVS,
    "env.cluster.tiers": [TIERS, TIERS[1:], TIERS[::-1]],
    "env.workload.offered_load": [None, 0.5],
    "env.workload.delay_s": [None, {"mean": 1.0}, {"mean": 2.0}],
    "env.observation.feature_set": ["paper", "rounds"],
    "stop.epochs": [None, 3],
    "resources.env_runners": [0, 2],
}
NAMES = ("paper", "steady-0.7", "mine", "yours")
OF_WORLDS: dict[str, list[Any]] = {
    "cluster.tiers": [TIERS, TIERS[1:], [*TIERS[:2], TIERS[2] | {"max_concurrent": 2}]],
    "workload.offered_load": [None, 0.5, 0.7],
    "workload.delay_s": [None, {"mean": 1.0}],
    "episode.arrivals_until_s": [None, 150.0],
    "cluster.changes.schedule": [[], [{"at_s": 1.0}]],
}


def changes(values: dict[str, list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Some values of some paths, none within a section that is chosen as well."""

    def given_at(chosen: dict[str, int]) -> dict[str, Any]:
        apart = [p for p in chosen if not any(p.startswith(f"{other}.") for other in chosen)]
        return {path: values[path][chosen[path] % len(values[path])] for path in apart}

    return st.dictionaries(st.sampled_from(sorted(values)), st.integers(0, 2), max_size=3).map(given_at)


def content_of(row: dict[str, Any], key: str) -> Any:
    return json.loads(dimensions_of(json.dumps(row | {"observability": None}))[key]["settings"])


OLDER = {"srr": {"lambda_kl": 0.2}, "network": OF_TRAININGS["network"][0]}
"""Settings of which one section lacks what it holds in another training, as in rows of an older version."""


@example([("scale", OLDER), ("scale", OLDER | {"srr": {"lambda_kl": 0.2, "lambda_decorrelation": 0.01}})])
@given(st.lists(st.tuples(st.sampled_from(["scale", "ppo"]), changes(OF_TRAININGS)), min_size=2, max_size=6))
def test_variants_are_the_distinct_settings_of_trainings(drawn: list[tuple[str, dict[str, Any]]]) -> None:
    rows = [episode_row(method, seed, 16, 0, settings=own) for seed in (1, 2) for method, own in drawn]
    names = loaded(rows)["schedulers"]["variant"].to_dict()
    groups: dict[str, set[str]] = {}
    for row in rows:
        scheduler = dimensions_of(json.dumps(row))["scheduler"]["scheduler"]
        content = content_of(row, "scheduler")
        del content["seed"]
        groups.setdefault(json.dumps(content, sort_keys=True), set()).add(names[scheduler])
    assert all(len(found) == 1 for found in groups.values()), "seeds of the same settings have one name"
    assert len({name for found in groups.values() for name in found}) == len(groups), "others have others"


@given(
    st.lists(
        st.tuples(st.sampled_from(NAMES), st.sampled_from([16, 32]), changes(OF_WORLDS)),
        min_size=2,
        max_size=6,
    )
)
def test_series_over_n_are_the_distinct_worlds_but_for_the_number_of_servers(
    drawn: list[tuple[str, int, dict[str, Any]]],
) -> None:
    rows = [
        episode_row("fastest-idle", None, servers, 0, scenario=name, world={"made_for": None, **world})
        for name, servers, world in drawn
    ]
    frame = loaded(rows)["episodes"].drop_duplicates("problem").set_index("problem")
    groups: dict[str, set[str]] = {}
    for row in rows:
        content = content_of(row, "problem")
        counts = [tier.pop("count") for tier in content["cluster"]["tiers"]]
        content["shares"] = [str(Fraction(count, sum(counts))) for count in counts]
        problem = dimensions_of(json.dumps(row))["problem"]["problem"]
        groups.setdefault(json.dumps(content, sort_keys=True), set()).add(frame.loc[problem, "scenario"])
        assert frame.loc[problem, "test_servers"] == sum(counts)
    assert all(len(found) == 1 for found in groups.values())
    assert len({name for found in groups.values() for name in found}) == len(groups)
