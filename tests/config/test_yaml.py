"""Strict YAML: numbers, keys, aliases, overrides. YAML's switches are no numbers, in no config model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from rllib_scale.config import TrialConfig
from rllib_scale.config.base import Model, merged
from rllib_scale.config.sweep import SweepConfig
from rllib_scale.config.yaml_files import build_model, explain, parse_yaml
from rllib_scale.errors import UserError
from rllib_scale.loading import load_sweep, read_mapping

BOMB = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]\n" for k in range(1, 9)
)


def test_numbers_merges_and_aliases_are_read() -> None:
    assert parse_yaml("[3e-4, 1E5, -2e+3, 1.5e3]", "x") == [3e-4, 1e5, -2e3, 1.5e3]
    text = "base: &base {a: 1, b: 2}\nmore: {<<: *base, b: 3}\ntwice: [*base, *base]\n"
    assert parse_yaml(text, "x") == {
        "base": {"a": 1, "b": 2},
        "more": {"a": 1, "b": 3},
        "twice": [{"a": 1, "b": 2}] * 2,
    }
    assert merged(None, {"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 4}, "d": {"e": 5}}) == {
        "a": {"b": 4, "c": 2},
        "d": {"e": 5},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\nseed: 2", r"bad.yaml line 2: not valid YAML: key 'seed' is given twice"),
        ("base: &b {a: 1}\nmore: {<<: *b, b: 3, b: 4}", r"line 2: not valid YAML: key 'b' is given twice"),
        ("seed: [1", r"bad.yaml line 1: not valid YAML"),
        ("seed: 1\n? [a, b]\n: 1", "line 2: .*a list or a mapping cannot be a key"),
        ("seed: \x07", "bad.yaml: not valid YAML: unacceptable character #x0007"),
        ("- 1", "bad.yaml: a mapping of keys to values is expected, not list"),
        (BOMB, "aliases unfold to .* values; at most 100,000"),
        ("seeds: &s [*s]", "aliases unfold to inf"),
        (f"seed: {'x' * 5000}", r"seed: .*\(got 'x{76}\.\.\.\)"),
        ("a: 1\nb: 2\nc: 3\nd: 4\n", "unknown key 'a'.*unknown key 'b'.*unknown key 'c'.*; and 1 more$"),
        ("algorithm: {name: ppo, clip: x, cilp: 1}", r"bad.yaml: unknown key 'algorithm.cilp'; did you mean 'clip'\?"),
    ],
)
def test_what_is_no_config_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(UserError, match=message) as caught:
        build_model(TrialConfig, read_mapping(tmp_path / "bad.yaml"), str(tmp_path / "bad.yaml"))
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_an_override_sets_a_path(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("name: s\nmethods: [scale]\nsearch: {samples: 3}\nenv: {cluster: paper-32}\n")
    overrides = ["search.space.srr.lambda_kl={uniform: [0.1, 0.2]}", "search.seed=3", "grid.algorithm.gamma=[0.5]"]
    config = load_sweep(tmp_path / "s.yaml", [*overrides, "env.cluster.servers=8"])
    assert config.search is not None
    assert list(config.search.space) == ["srr.lambda_kl"]
    assert (config.search.samples, config.search.seed, config.grid) == (3, 3, {"algorithm.gamma": (0.5,)})
    assert config.problem_at(())[1].cluster.num_servers == 8, "it replaces the name of a preset"
    for wrong in ("search.seed", "=3"):
        with pytest.raises(UserError, match=f"--set '{wrong}': must be KEY=VALUE"):
            load_sweep(tmp_path / "s.yaml", [wrong])
    zipped = ["zip.env.cluster.servers=[8, 16]", "zip.algorithm.epochs=[1, 2]"]
    together = {"env.cluster.servers": (8, 16), "algorithm.epochs": (1, 2)}
    assert load_sweep(tmp_path / "s.yaml", zipped).zip == (together,)
    more = ["zip=[{srr.lambda_kl: [1]}]", "zip.algorithm.epochs=[1]"]
    assert load_sweep(tmp_path / "s.yaml", more).zip == ({"srr.lambda_kl": (1,), "algorithm.epochs": (1,)},)
    more[0] = "zip=[{srr.lambda_kl: [1]}, {algorithm.gamma: [1]}]"
    with pytest.raises(UserError, match=r"--set zip.algorithm.epochs: zip has 2 mappings; valid: --set zip="):
        load_sweep(tmp_path / "s.yaml", more)


def test_the_schema_for_editors_takes_the_presets_and_no_misspelt_key() -> None:
    checks = Draft202012Validator(SweepConfig.model_json_schema())
    for file in sorted(Path("tune_configs").glob("*.yaml")):
        data = read_mapping(file)
        assert not list(checks.iter_errors(data)), file
    for wrong in ({"algorithm": {"clap": 0.1}}, {"algorithm": {"clip": "x"}}, {"env": {"clap": 1}}, {"methods": [3]}):
        assert list(checks.iter_errors(data | wrong)), wrong
    own = [{"scale": {"algorithm": {"clip": 0.1}}}, {"dqn": {"network": {"name": "deep-sets"}}}]
    assert not list(checks.iter_errors(data | {"methods": own}))
    assert list(checks.iter_errors(data | {"methods": [{"scale": {"algorithm": {"clap": 0.1}}}]}))
    algorithm = checks.schema["properties"]["algorithm"]["properties"]
    assert (algorithm["clip"]["default"], "user-defined" in algorithm["reward"]["description"]) == (0.2, True)


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
        whole = model.model_json_schema()
        mapping = whole if "properties" in whole else whole["anyOf"][-1]  # or a text in place of the mapping
        for name, schema in mapping["properties"].items():
            types = types_of(schema)
            is_plain = schema.get("type") != "object" and "const" not in schema  # no mapping, no format's version
            if not types & {"integer", "number"} or "boolean" in types or not is_plain:
                continue
            for value in (True, False):
                given = [value] * schema.get("minItems", 1) if schema.get("type") == "array" else value
                with pytest.raises(ValidationError) as caught:
                    model.model_validate({name: given})
                said = explain(caught.value)
                assert said.startswith(f"{name}: "), (model, name, said)
                assert "must be a number, not" in said, (model, name, said)
            checked.add(f"{model.__name__}.{name}")
    assert {"DecisionConfig.candidates", "ClusterConfig.empty_slots", "TrialResources.env_runners"} <= checked
    assert len(checked) > 150, len(checked)
