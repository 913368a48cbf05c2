"""Artificial results: schema-true rows, frames as `analysis.load` returns them, folders as a sweep leaves them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rllib_scale_analysis.variants import labelled

from rllib_scale.config import METHODS, SCENARIOS, EnvConfig, TrialConfig, digest
from rllib_scale.config.identity import protocol_of, world_of
from rllib_scale.config.plan import Trial, as_trained
from rllib_scale.config.schedulers import ALL_RULES
from rllib_scale.files import write_atomic
from rllib_scale.results import dataset
from rllib_scale.results import tables as results
from rllib_scale.results.columns import FEATURE_COLUMNS, METRIC_COLUMNS
from rllib_scale.results.dataset import TABLES
from rllib_scale.zoo import POLICY_FILES

SEEDS = (42, 43, 44, 45, 46)
SCALES = (16, 32, 48, 128)
HEURISTICS = ("fastest-idle", "earliest-finish", "large-only", "round-robin", "random-feasible", "best-fit-memory")
LEVELS = {  # method: completed tasks per 16 servers, response in s
    "scale": (9.0, 4.5),
    "crossattn": (10.5, 4.9),
    "ppo": (7.5, 4.7),
    "fastest-idle": (14.0, 5.6),
    "earliest-finish": (7.6, 4.3),
    "large-only": (7.4, 4.2),
    "round-robin": (12.0, 5.7),
    "random-feasible": (11.7, 5.7),
    "best-fit-memory": (10.0, 5.9),
}


def episode_row(method: str, seed: int | None, servers: int, episode: int, **values: Any) -> dict[str, Any]:
    """One row of `episodes` in words, which `identified` makes ids of; `values` override what a plain row holds.

    Besides metrics it holds `settings` of the training, `world` of the problem and `asked` of the protocol, each a
    mapping of paths to values over those of the method and the scenario.
    """
    row: dict[str, Any] = {
        **{"method": method, "train_seed": seed, "settings": {"algorithm.epochs": 40, "algorithm.gamma": 0.5}},
        **{"scenario": "paper", "world": {}, "test_servers": servers, "mask": "none", "asked": {}},
        **{"family": None, "number": None, "decision": "argmax", "eval_seed": 1, "episode": episode},
        "observability": "clairvoyant"
        if method in ALL_RULES and ALL_RULES[method].sees == "workflows"
        else "waiting tasks",
    }
    if method not in METHODS:
        row["settings"] = {}
    return row | dict.fromkeys(METRIC_COLUMNS, 0) | values


Tables = dict[str, list[dict[str, Any]]]


def identified(rows: Iterable[dict[str, Any]]) -> tuple[list[dict[str, Any]], Tables]:
    """Rows with ids in place of words, and the rows of the dimensions that these name."""
    found: list[dict[str, Any]] = []
    tables: dict[str, dict[Any, dict[str, Any]]] = {"schedulers": {}, "problems": {}, "protocols": {}}
    for row in rows:
        own = {name: value for name, value in row.items() if name not in WORDS}
        for key, dimension in dimensions_of(json.dumps({name: row[name] for name in WORDS if name in row})).items():
            tables[f"{key}s"][tuple(map(str, dimension.values()))] = dict(dimension)
            own[key] = dimension[key]
        found.append(own)
    return found, {name: [*rows_of.values()] for name, rows_of in tables.items()}


WORDS = (
    "method",
    "train_seed",
    "settings",
    "scenario",
    "world",
    "test_servers",
    "mask",
    "asked",
    "family",
    "number",
    "version",
)


@cache
def dimensions_of(words: str) -> dict[str, dict[str, Any]]:
    """Key -> row of the dimension of what a row says in words, as JSON."""
    row = json.loads(words)
    version = {"version": row.get("version", "1.0")}
    method, changed = row["method"], row["settings"]
    content: dict[str, Any] = {"name": method, **changed}
    if method in METHODS:
        content = TrialConfig.of(method, seed=row["train_seed"]).deciding(defaults=True)
        content = changed_at(content, changed)
    text = json.dumps(content)
    found = {
        "scheduler": {"scheduler": digest([text, version])[:12], "kind": "training" if method in METHODS else "rule"}
        | {"name": "" if method in METHODS else method, "settings": text}
        | version
    }
    if "scenario" not in row:
        return found
    env = (SCENARIOS[row["scenario"]].env if row["scenario"] in SCENARIOS else EnvConfig()).at_scale(
        row["test_servers"]
    )
    env, world = env.with_mask(row["mask"]), row["world"]
    if row["scenario"] not in SCENARIOS:
        world = {"made_for": f"{row['scenario']} {row['number']}", **world}
    text = json.dumps(changed_at(world_of(env, defaults=True), world))
    found["problem"] = {"problem": digest(text)[:12], "settings": text}
    found["problem"] |= {name: row[name] for name in ("scenario", "family", "number")} | version
    text = json.dumps(changed_at(protocol_of(env, defaults=True), row["asked"]))
    return found | {"protocol": {"protocol": digest(text)[:12], "settings": text} | version}


def changed_at(content: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Nested settings with values at paths."""
    for path, value in values.items():
        *above, last = path.split(".")
        section = content
        for name in above:
            if not isinstance(section.get(name), dict):
                section[name] = {}
            section = section[name]
        section[last] = value
    return content


def changed(row: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The row of a training with some settings of its own, by their paths."""
    return row | {"settings": row["settings"] | settings}


def as_in_the_paper(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of trainings as in the paper, but for the number of epochs."""
    return [row | {"settings": {"algorithm.epochs": 40} if row["method"] in METHODS else {}} for row in rows]


def loaded(
    episodes: Iterable[dict[str, Any]] = (),
    training: Iterable[dict[str, Any]] = (),
    features: Iterable[dict[str, Any]] = (),
    notes: list[str] | None = None,
) -> dict[str, pd.DataFrame]:
    """The tables of rows in words as `analysis.load` returns them."""
    tables = {
        name: results.typed(pd.DataFrame(rows), TABLES[name].columns)
        for name, rows in tables_of(episodes, training, features).items()
    }
    return labelled(tables, [] if notes is None else notes)


def tables_of(
    episodes: Iterable[dict[str, Any]],
    training: Iterable[dict[str, Any]] = (),
    features: Iterable[dict[str, Any]] = (),
) -> Tables:
    """Rows in words as the tables of a results folder."""
    parts = {"episodes": [*episodes], "training": [*training], "features": [*features]}
    found = {name: identified(rows)[0] for name, rows in parts.items()}
    return found | identified([row for rows in parts.values() for row in rows])[1]


def typed_episodes(rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Rows as `analysis.load` returns them."""
    return loaded(rows)["episodes"]


def typed_training(rows: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Training rows as `analysis.load` returns them."""
    return loaded(training=rows)["training"]


def artificial_episodes(
    seeds: Sequence[int] = SEEDS,
    scales: Sequence[int] = SCALES,
    methods: Sequence[str] = tuple(LEVELS),
    episodes: int = 6,
) -> list[dict[str, Any]]:
    """Schema-true rows at the levels of LEVELS; workloads are shared by (scale, episode), as in a real sweep."""
    rows = []
    for method in methods:
        learned = method not in HEURISTICS
        for seed in seeds if learned else (None,):
            for servers in scales[:1] if method == "ppo" else scales:
                for episode in range(episodes):
                    rows.append(_row(method, seed, servers, episode))
    return rows


def _row(method: str, seed: int | None, servers: int, episode: int) -> dict[str, Any]:
    workload = np.random.default_rng([servers, episode])
    arrived = int(workload.poisson(66 * servers / 16))
    easier = workload.normal()
    noise = np.random.default_rng([sum(method.encode()), seed or 0, servers, episode])
    skill = np.random.default_rng([sum(method.encode()), seed or 0]).normal() if seed else 0.0
    completed_level, response_level = LEVELS[method]
    growth = 1 + (0.12 if method == "scale" else 0.2) * np.log2(servers / 16) * (method not in HEURISTICS)
    completed = int(
        np.clip(round((completed_level + 1.5 * easier + 0.8 * skill + noise.normal()) * servers / 16), 1, arrived)
    )
    response = response_level * growth + 0.3 * easier + 0.15 * skill + 0.2 * noise.normal()
    invalid = [int(n) for n in noise.poisson((30, 40, 5))] if seed else [0, 0, 0]
    return episode_row(
        method,
        seed,
        servers,
        episode,
        arrived=arrived,
        completed=completed,
        unfinished=arrived - completed,
        response_mean_s=response,
        response_median_s=response - 0.1,
        response_p95_s=response + 2,
        response_censored_s=response + 1.2,
        jct_mean_s=np.nan if episode == 0 else response + 3,
        workflows_arrived=arrived // 5,
        workflows_completed=completed // 6,
        episode_return=0.11 * completed,
        decisions=completed + sum(invalid),
        invalid_no_fit=invalid[0],
        invalid_busy_avoidable=invalid[1],
        invalid_busy_unavoidable=invalid[2],
        duration_s=12.0,
        energy_j=1e4,
        utilisation=0.4,
        utilisation_large=0.8,
    )


def artificial_training(
    seeds: Sequence[int] = SEEDS, methods: Sequence[str] = ("scale", "crossattn", "ppo"), epochs: int = 40
) -> list[dict[str, Any]]:
    """Schema-true training curves; the MLP has no attention feature, so its values are missing."""
    rows = []
    for method in methods:
        for seed in seeds:
            noise = np.random.default_rng([sum(method.encode()), seed])
            identity = {k: v for k, v in episode_row(method, seed, 16, 0).items() if k in WORDS[:3]}
            attention = method != "ppo"
            for epoch in range(1, epochs + 1):
                progress = 1 - np.exp(-epoch / 12)
                completed = 4 + (LEVELS[method][0] - 4) * progress + 0.6 * noise.normal()
                rows.append(
                    identity
                    | {
                        "epoch": epoch,
                        "env_steps": 1024 * epoch,
                        "wall_s": 0.4 * epoch,
                        "env_steps_per_s": 2500.0,
                        "episode_return": 0.11 * completed,
                        "completed": completed,
                        "response_mean_s": LEVELS[method][1] + 0.3 * (1 - progress) + 0.1 * noise.normal(),
                        "entropy": 2.7 - progress,
                        "srr_decorrelation": 30 * np.exp(-epoch / 15) + noise.random() if attention else np.nan,
                        "srr_kl": 0.5 + 0.1 * noise.random() if attention else np.nan,
                        "feature_correlation": 0.2 + 0.3 * (1 - progress) if attention else np.nan,
                    }
                )
    return rows


def artificial_features(
    seeds: Sequence[int] = SEEDS,
    scales: Sequence[int] = SCALES,
    methods: Sequence[str] = ("scale", "crossattn", "ppo"),
) -> list[dict[str, Any]]:
    """Schema-true feature rows; drift grows with the scale, and the MLP has none."""
    rows = []
    for method in methods:
        for seed in seeds:
            for servers in scales[:1] if method == "ppo" else scales:
                noise = np.random.default_rng([sum(method.encode()), seed, servers])
                row = {
                    k: v for k, v in episode_row(method, seed, servers, 0).items() if k in (*WORDS, *FEATURE_COLUMNS)
                }
                spread = 0.02 if method == "scale" else 0.5
                drift = np.nan if method == "ppo" else 0.1 * np.log2(servers / 8) * noise.uniform(0.8, 1.2)
                row |= {"feature_rows": 1500, "feature_dim": 256 if method == "ppo" else 16}
                row |= {"feature_covariance": 0.4 * spread * noise.uniform(0.8, 1.2), "feature_variance": spread}
                row |= {"feature_correlation": 0.4, "feature_kl": 0.5 - np.log(spread), "feature_effective_rank": 4.0}
                row |= {"drift_wasserstein": drift * spread, "drift_wasserstein_relative": drift}
                rows.append(row | {"drift_mmd2": drift**2})
    return rows


def write_folder(
    folder: Path,
    episodes: Iterable[dict[str, Any]],
    training: Iterable[dict[str, Any]],
    features: Iterable[dict[str, Any]] = (),
    sweep: str = "artificial",
) -> Path:
    """A results folder as a sweep leaves it."""
    results.open_folder(folder, sweep, {"name": sweep}, "0123456789ab")
    dataset.append(folder, **tables_of(episodes, training, features))
    return folder


def part_of(folder: Path, table: str = "episodes") -> Path:
    """The only part of a table."""
    (part,) = (folder / table).iterdir()
    return part


def publish(folder: Path, trial: Trial, **values: Any) -> None:
    """The policy of a finished training, without weights, and its row; `values` override what a plain row holds."""
    for name in POLICY_FILES:
        write_atomic(folder / "policies" / trial.name / name, lambda path: path.write_text("{}"))
    epochs = int(values.get("epochs", trial.config.stop_epochs))
    ended = as_trained(trial.config, epochs).trial_id
    row = {"name": trial.name, "scheduler": ended, "stopped": False, "epochs": epochs, "policy_bytes": 4}
    dataset.append(folder, trainings=[row | values])
