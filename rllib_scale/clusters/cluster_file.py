"""Checking a cluster file for `ray up` without a cloud: what Ray itself would refuse, and what it would not notice."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from rllib_scale.config.plan import SweepConfig, cpus_per_trial
from rllib_scale.config.yaml_files import load_model, parse_yaml, read_text
from rllib_scale.errors import UserError

CHANGE_MARK = "CHANGE:"
"""Comment on a line that its user must change."""

_INSTANCE = re.compile(r"^[cmr][5-9][a-z]*\.(large|(\d*)xlarge)$")
_SECRETS = {
    "an AWS access key": re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{16}\b"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY"),
    "a token": re.compile(
        r"\b(gh[pousr]_|github_pat_|hf_|glpat-|xox[abp]-)\w{10,}|\b[0-9a-fA-F]{40,}\b|\beyJ[\w-]{20,}"
    ),
    # A reference such as $TOKEN, $(cat file) or a path is no secret, and neither is the name of a file with one.
    "a credential": re.compile(
        r"(?i)(password|passwd|secret_access_key|session_token|api_?key|auth_token|client_secret)['\"]?\s*[=:]\s*"
        r"['\"]?(?![$~/<{]|null\b|$)[^\s'\"#]{6,}"
    ),
}
_OPEN_DASHBOARD = re.compile(r"--dashboard-host[= ]\s*['\"]?(?!127\.|localhost)(\S+?)['\"]?(\s|$)")


def instance_cpus(name: str) -> int | None:
    """CPUs of an EC2 instance of the families c, m and r from generation 5 on; None for others, which differ.

    >>> instance_cpus("c7i.2xlarge"), instance_cpus("m5.large"), instance_cpus("t3.large")
    (8, 2, None)
    """
    match = _INSTANCE.match(name)
    if match is None:
        return None
    return 2 if match[1] == "large" else 4 * int(match[2] or 1)


def check_cluster_file(file: Path, sweep: Path | None = None, open_dashboard: bool = False) -> Iterator[str]:
    """Check a cluster file and yield what was found to be well, one line each.

    Args:
        file: the YAML for `ray up`.
        sweep: a sweep whose trainings the workers must be able to hold.
        open_dashboard: allow a dashboard that is not bound to loopback.

    Raises:
        UserError: the first thing that is wrong, with its key, its value and what would be valid.
    """
    text = read_text(file)
    _check_no_secret(file, text)
    config = prepared(file, parse_yaml(text, str(file)))
    kind, workers = config["provider"]["type"], config["max_workers"]
    yield f"{file}: valid for Ray ({kind}, at most {workers} workers), no secret in it"
    _check_workers(file, config)
    _check_start(file, config, open_dashboard)
    yield "authentication by token, dashboard " + ("open as asked" if open_dashboard else "bound to loopback")
    if sweep is not None:
        yield _check_holds(file, config, sweep)
    for path in sorted(map(str, config["file_mounts"].values())):
        if not Path(path).expanduser().exists():
            yield f"not there yet: {path}, which file_mounts copies to every node"
    for number, line in enumerate(text.splitlines(), start=1):
        if CHANGE_MARK in line:
            yield f"to change, line {number}: {line.strip()}"


def prepared(file: Path, data: Any) -> dict[str, Any]:
    """The config as Ray completes it with its defaults.

    Raises:
        UserError: Ray would refuse it.
    """
    import click
    import jsonschema
    import ray.autoscaler
    from ray.autoscaler._private.util import prepare_config, validate_config

    if not isinstance(data, dict):
        raise UserError(f"{file}: a mapping of keys to values is expected, not {type(data).__name__}")
    schema = Path(ray.autoscaler.__file__).with_name("ray-schema.json")
    logging.getLogger("ray.autoscaler").setLevel(logging.ERROR)
    try:
        jsonschema.validate(data, json.loads(schema.read_text(encoding="utf-8")))
        _check_provider(file, data)
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):  # Ray's hints about Docker
            config = dict(prepare_config(data))
        validate_config(config)
    except jsonschema.ValidationError as error:
        raise UserError(f"{file}: {_explain(error)}") from None
    except (click.ClickException, ValueError, KeyError, RuntimeError, NotImplementedError) as error:
        raise UserError(f"{file}: {' '.join(str(error).split())}") from None
    return config


def _check_provider(file: Path, data: dict[str, Any]) -> None:
    provider = data["provider"]
    known = ("aws", "local", "fake_multinode")
    if provider["type"] not in known:
        raise UserError(f"{file}: provider.type {provider['type']!r}: this check knows {', '.join(known)}")
    if provider["type"] == "local" and not ("head_ip" in provider and provider.get("worker_ips")):
        raise UserError(f"{file}: provider: type local needs head_ip and a list of worker_ips")


def _explain(error: Any) -> str:
    where = ".".join(str(part) for part in error.absolute_path)
    if error.validator == "additionalProperties":
        unknown = sorted(set(error.instance) - set(error.schema.get("properties", {})))
        return f"unknown key {'.'.join(filter(None, (where, unknown[0])))!r}"
    shown = "" if isinstance(error.instance, (dict, list)) else f" (got {error.instance!r})"
    if error.validator == "type":
        return f"{where}: must be of type {error.validator_value}{shown}"
    return f"{where}: {error.message}" if where else str(error.message)


def _workers(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    types = config["available_node_types"]
    if config["provider"]["type"] == "local":
        return dict(types)
    return {name: node for name, node in types.items() if name != config["head_node_type"]}


def _check_workers(file: Path, config: dict[str, Any]) -> None:
    highest = config["max_workers"]
    workers = _workers(config)
    for name, node in workers.items():
        where = f"{file}: available_node_types.{name}"
        if node["max_workers"] > highest:
            raise UserError(f"{where}.max_workers {node['max_workers']}: more than the cluster's max_workers {highest}")
        if node["min_workers"] > node["max_workers"]:
            raise UserError(
                f"{where}.min_workers {node['min_workers']}: more than its max_workers {node['max_workers']}"
            )
    if not any(node["max_workers"] > 0 for node in workers.values()):
        raise UserError(f"{file}: no node type beside the head may have workers (max_workers above 0)")


def _check_start(file: Path, config: dict[str, Any], open_dashboard: bool) -> None:
    for key in ("head_start_ray_commands", "worker_start_ray_commands"):
        starts = [command for command in config[key] if "ray start" in command]
        if not starts:
            raise UserError(f"{file}: {key}: no `ray start` among them")
        for command in starts:
            if "RAY_AUTH_MODE=token" not in command:
                raise UserError(
                    f"{file}: {key}: `ray start` without RAY_AUTH_MODE=token before it is open to everybody"
                )
            host = _OPEN_DASHBOARD.search(command)
            if host is not None and not open_dashboard:
                raise UserError(
                    f"{file}: {key}: --dashboard-host={host[1]} opens the dashboard beyond the head; "
                    "valid: 127.0.0.1, or say --open-dashboard"
                )


def _check_holds(file: Path, config: dict[str, Any], sweep: Path) -> str:
    """One trial of the sweep, learner and environment runners, fits on one worker."""
    resources = load_model(SweepConfig, sweep).resources
    needed = cpus_per_trial(resources)
    made_of = f"{resources.cpus:g} for its learner and {resources.env_runners} for its environment runners"
    if config["provider"]["type"] == "local":
        return f"{sweep}: a training needs {needed:g} CPUs ({made_of}); what the hosts have is not in the file"
    cpus: dict[str, int] = {}
    for name, node in _workers(config).items():
        instance = str(node["node_config"].get("InstanceType", ""))
        known = node["resources"].get("CPU", instance_cpus(instance))
        if known is None:
            raise UserError(
                f"{file}: available_node_types.{name}: CPUs of instance type {instance!r} are not known here; "
                "give resources: {CPU: ...}"
            )
        if node["max_workers"] > 0:
            cpus[name] = known
    largest = max(cpus, key=lambda name: cpus[name])
    if cpus[largest] < needed:
        raise UserError(
            f"{file}: {sweep} needs {needed:g} CPUs for a training ({made_of}), "
            f"the largest worker type, {largest}, has {cpus[largest]}"
        )
    return f"{sweep}: a training needs {needed:g} CPUs ({made_of}), a {largest} has {cpus[largest]}"


def _check_no_secret(file: Path, text: str) -> None:
    for number, line in enumerate(text.splitlines(), start=1):
        for what, pattern in _SECRETS.items():
            if pattern.search(line):
                raise UserError(
                    f"{file} line {number}: looks like {what}; secrets do not belong in this file: "
                    "name a file of yours, an environment variable or an instance role"
                )
