"""YAML's switches are no numbers: `true`, `on` and `off` are refused in every numeric field of every config model."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from rllib_scale.config.base import Model
from rllib_scale.config.plan import SweepConfig
from rllib_scale.config.yaml_files import build_model, parse_yaml
from rllib_scale.errors import UserError


def models(base: type[Model] = Model) -> Iterator[type[Model]]:
    for model in base.__subclasses__():
        yield model
        yield from models(model)


def types_of(schema: Any) -> set[str]:
    """The JSON types in a property's schema, without what another model says of itself."""
    if isinstance(schema, dict):
        own = {schema["type"]} if isinstance(schema.get("type"), str) else set()
        return own.union(*(types_of(value) for key, value in schema.items() if key != "default"))
    return set().union(*map(types_of, schema)) if isinstance(schema, list) else set()


def test_no_numeric_field_takes_a_switch() -> None:
    checked = set()
    for model in (model for model in models() if model.__module__.startswith("rllib_scale.")):
        for name, schema in model.model_json_schema()["properties"].items():
            types = types_of(schema)
            if not types & {"integer", "number"} or "boolean" in types or "const" in schema:  # a format's version
                continue
            for value in (True, False):
                given = [value] * schema.get("minItems", 1) if schema.get("type") == "array" else value
                with pytest.raises(ValidationError) as caught:
                    model.model_validate({name: given})
                said = [str(error["msg"]) for error in caught.value.errors() if error["loc"] == (name,)]
                assert any("must be a number, not" in message for message in said), (model, name, json.dumps(said))
            checked.add(f"{model.__name__}.{name}")
    assert {"DecisionConfig.candidates", "ClusterConfig.empty_slots", "TrialResources.env_runners"} <= checked
    assert len(checked) > 150, len(checked)


@pytest.mark.parametrize(
    "text",
    [
        "env: {decision: {candidates: true}}",
        "env: {cluster: {empty_slots: on}}",
        "resources: {env_runners: true}",
        "search: {space: {training.gamma: {uniform: [off, 1]}}}",
        "network: {mlp_hidden: [on]}",
    ],
)
def test_a_switch_in_yaml_is_named(text: str) -> None:
    with pytest.raises(UserError, match=r"must be a number, not (true|false) \(in YAML also") as caught:
        build_model(SweepConfig, {"name": "x", "methods": ["ppo"]} | parse_yaml(text, "x"), "x")
    key = text.replace("{", "").split(":")[-2].strip()
    assert key in str(caught.value)
