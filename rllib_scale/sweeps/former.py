"""Results of version 0.3 in the form of this version: ids and tables of settings in place of words.

Metrics do not change. Settings that this version does not know, such as those of removed methods, are kept.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import pandas as pd
from pydantic import ValidationError

from rllib_scale import zoo
from rllib_scale.config import EnvConfig, TrialConfig, digest, family
from rllib_scale.config.base import merged
from rllib_scale.config.identity import ASKED, content_id, described, protocol_of, world_of
from rllib_scale.config.pinned import DIGEST_SEPARATOR, digest_of, split, without_places
from rllib_scale.config.plan import EvaluationUnit, Plan, Problem, Row, Trial
from rllib_scale.config.schedulers import parse_scheduler
from rllib_scale.config.sweep import SweepConfig, path_of
from rllib_scale.errors import UserError
from rllib_scale.files import write_json
from rllib_scale.policies.description import facts, scheduler_row
from rllib_scale.results import dataset
from rllib_scale.results.columns import UNIT_COLUMNS
from rllib_scale.results.storage import Location
from rllib_scale.results.tables import VERSION
from rllib_scale.sweeps.checkpoints import newest_checkpoints
from rllib_scale.sweeps.former_sweep import sweep_of
from rllib_scale.workloads.family import fixed_seed

FORMER_VERSION, FORMER_FORMAT = 2, 4
"""Versions of results of 0.3 and of their digests."""
_ZOO = {"5f05617fcbb51aa9", "65b2106428913f69", "02621b456a635379", "3178a98b4811dd9d"}
_ZOO |= {"f768545d40bc89ec", "2d295d24f76db26d"}
"""Digests of policy.json in the zoo of 0.3 and before, with the weights that it has today."""
_WORDS = ["sweep", "trial_id", "format", "method", "kind", "train_seed", "lambda_decorrelation", "lambda_kl"]
_WORDS += ["overrides", "train_servers", "scenario", "changes", "test_servers", "mask", "asked", "problem", "protocol"]
_WORDS += ["config"]
_OF_TRAINING, _PLAYED = ("epochs", "env_steps"), ("episodes", "features")


class Former(NamedTuple):
    """A training of 0.3.

    Attributes:
        config: its settings, without those that this version does not have.
        gone: these, by section.
    """

    config: TrialConfig
    gone: dict[str, Any]

    @property
    def row(self) -> Row:
        """Its row of `schedulers`."""
        own, every = (merged(None, self.config.deciding(defaults), self.gone) for defaults in (False, True))
        return {"scheduler": content_id(without_places(own)), "kind": "training", "name": "", **described(every)}

    @property
    def name(self) -> str:
        """METHOD-sSEED-ID."""
        return f"{self.config.method}-s{self.config.seed}-{self.row['scheduler']}"


def training_of(former: Mapping[str, Any]) -> Former:
    """A training from its JSON in 0.3.

    Raises:
        UserError: it has a section that this version cannot read without some of it.
    """
    content: dict[str, Any] = json.loads(json.dumps({key: value for key, value in former.items() if key != "method"}))
    if content["algorithm"]["name"] == "cma" and "method" in former:
        content["algorithm"]["rule"] = former["method"]
    gone: dict[str, Any] = {}
    while True:
        try:
            return Former(TrialConfig.model_validate(content), gone)
        except ValidationError as error:
            faults = [(each["loc"], key) for each in error.errors() for key in each.get("ctx", {}).get("keys", [()])]
            if not any([_take(content, gone, (*place, *key)) for place, key in faults]):
                raise UserError(f"a training of {former.get('method')}: {error.errors()[0]['msg']}") from None


def _take(content: dict[str, Any], gone: dict[str, Any], place: Iterable[str | int]) -> bool:
    """Move the setting that is at fault; returns whether there is one. A place may name members of unions, too."""
    section, into, path = content, gone, [str(part) for part in place]
    while path:
        part = path.pop(0)
        if part not in section:
            continue
        if isinstance(section[part], dict) and path:
            section, into = section[part], into.setdefault(part, {})
        else:
            into[part] = section.pop(part)
            return True
    return False


def convert_results(home: Path, to: Path) -> dict[str, str]:
    """Write results of 0.3 to another folder in the form of this version; returns new names of trainings by old ones.

    Raises:
        UserError: they are of another version, or hold unfinished trainings or rows that their plan does not explain.
    """
    source = home / "manifest.json"
    manifest = json.loads(_pinned_anew(source.read_text(encoding="utf-8")))
    if manifest.get("version") != FORMER_VERSION or not manifest.get("plan"):
        raise UserError(f"{source}: results version {manifest.get('version')!r}; valid: those of a sweep of 0.3")
    former = {name: _rows(Location(str(home)), name) for name in ("features", "episodes", "history", "training")}
    ended = _rows(Location(str(home)), "trainings")
    if begun := newest_checkpoints(home / "trials").keys() - {*ended.get("name", ())}:
        raise UserError(f"{home}: training {min(begun)} has not ended; finish it with 0.3, or remove it from trials/")
    plan = _FormerPlan(manifest, ended, str(source))
    tables = {
        name: plan.converted(frame, former["episodes"], name)
        for name, frame in (former | {"trainings": ended}).items()
        if len(frame)
    }
    sizes: dict[str, int] = {}
    for old, new in plan.names.items():
        if (folder := home / "policies" / old).is_dir():
            convert_policy(folder, to / "policies" / new)
            sizes[new] = sum(file.stat().st_size for file in (to / "policies" / new).iterdir())
    if len(ended):
        tables["trainings"] = tables["trainings"].assign(policy_bytes=lambda rows: rows["name"].map(sizes))
    dataset.append(to, **plan.dimensions(tables), **tables)
    content = manifest | {"version": VERSION, "plan": plan.to_json()} | _config(manifest["config"])
    write_json(to / "manifest.json", content)
    return plan.names


def _config(former: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a sweep in its manifest; unchanged if its method is gone."""
    config = sweep_of(former)
    try:
        SweepConfig.model_validate(config)
    except ValidationError:
        return {}
    return {"config": config, "config_hash": digest(config)}


def _pinned_anew(text: str) -> str:
    """Text in which policies of the zoo, as far as they are those of 0.3, are pinned to their present files."""

    def pinned(match: re.Match[str]) -> str:
        place, content = split(match[0])
        known = content in _ZOO and zoo.is_named(place)
        return f"{place}{DIGEST_SEPARATOR}{digest_of(zoo.folder_of(place) / zoo.DESCRIPTION)}" if known else match[0]

    return re.sub(r"zoo:[a-z-]+#sha256=[0-9a-f]+", pinned, text)


def _rows(home: Location, table: str) -> pd.DataFrame:
    """The rows of a table with the columns that they have."""
    found, lacking = dataset.read_parts(home, table, dataset.parts(home, table))
    rows = found.drop(columns=lacking)
    return rows.assign(trial_id=rows["trial_id"].map(_pinned_anew)) if "trial_id" in rows else rows


def convert_policy(folder: Path, to: Path) -> None:
    """Write a policy of 0.3 to another folder in the form of this version."""
    description = json.loads((folder / zoo.DESCRIPTION).read_text(encoding="utf-8"))
    config, gone = training_of(description["trial"])
    facts_now = merged(None, facts(config), {"trial": gone})
    write_json(to / zoo.DESCRIPTION, facts_now | {name: description[name] for name in ("epochs", "sha256")})
    shutil.copyfile(folder / "policy.safetensors", to / "policy.safetensors")


class _FormerPlan:
    """Ids in the plan of a manifest of 0.3 and in its finished trainings.

    Attributes:
        names: names of trainings by their old ones.
    """

    def __init__(self, manifest: Mapping[str, Any], ended: pd.DataFrame, source: str) -> None:
        self._plan, self._source = manifest["plan"], source
        self._evaluation = manifest["config"]["evaluation"]
        self._trainings = {each["name"]: training_of(each["trial"]) for each in self._plan["trainings"]}
        self._schedulers = {
            each["columns"]["trial_id"]: self._trainings[each["name"]].row for each in self._plan["trainings"]
        }
        self.names = {name: training.name for name, training in self._trainings.items()}
        for row in dataset.records(ended):  # a search has changed some, and others are of an earlier plan
            training = training_of(json.loads(row["config"]))
            self._schedulers[row["trial_id"]] = training.row
            self.names.setdefault(row["name"], training.name)
        self._problems = [self._problem(each) for each in self._plan["problems"]]
        self._of_problem = {_former_id(world_of(problem.env)): problem for problem in self._problems}
        self._protocols: dict[str, Row] = {}
        for each in self._plan["evaluations"]:
            if "columns" in each:
                old = each["columns"]["trial_id"]
                self._schedulers[old] = self._schedulers.get(old) or _given(each["scheduler"], old)
            self._protocols.setdefault(each["protocol"], self._protocol(each, self._trainings.get(each["scheduler"])))
        self._ids = {old: row["scheduler"] for old, row in self._schedulers.items()}

    def _problem(self, each: Mapping[str, Any]) -> Problem:
        kind, number = family.SCENARIOS.get(each["scenario"], (None,))[0], None
        seed = each.get("seed", self._evaluation["seed"])
        if kind is not None:
            seeds = {fixed_seed(kind, k, self._evaluation["seed"]): k for k in range(family.TEST_PROBLEMS)}
            number = seeds[seed]
        return Problem(each["scenario"], EnvConfig.model_validate(each["env"]), seed, kind, number)

    def _protocol(self, each: Mapping[str, Any], training: Former | None) -> Row:
        env, gone = self._problems[each["problem"]].env, {}
        if training is not None and not training.config.dispatches:
            own, every = training.config.env, training.gone.get("env", {})
            env = env.in_rounds_of(own, each["scheduler"]).model_copy(update={"observation": own.observation})
            gone = {name: every[name] for name in ASKED if name in every}
        content = merged(None, protocol_of(env), gone)
        if _former_id(content) != each["protocol"]:
            raise UserError(f"{self._source}: protocol {each['protocol']}: does not match its settings")
        return {"protocol": content_id(content), **described(merged(None, protocol_of(env, defaults=True), gone))}

    def dimensions(self, tables: Mapping[str, pd.DataFrame]) -> dict[str, list[Row]]:
        """The rows of dimensions for converted tables; a search has changed some trainings that were planned."""
        ids = {one for frame in tables.values() for one in frame.get("scheduler", ())}
        rows = [problem.row for problem in self._problems]
        origins = {(row["problem"], row["scenario"], row["number"]): row for row in rows}
        return {
            "schedulers": [
                *{row["scheduler"]: row for row in self._schedulers.values() if row["scheduler"] in ids}.values()
            ],
            "problems": [*origins.values()],
            "protocols": [*{row["protocol"]: row for row in self._protocols.values()}.values()],
        }

    def converted(self, frame: pd.DataFrame, episodes: pd.DataFrame, table: str) -> pd.DataFrame:
        """Rows of a table with ids in place of words; `episodes` are those of 0.3."""
        columns = {name: frame[name].map(self.names) for name in ("name", "trial", "member") if name in frame}
        if table == "history":
            columns["setting"] = frame["setting"].map(path_of)
        if "trial_id" in frame:
            columns["scheduler"] = frame["trial_id"].map(
                {old: row["scheduler"] for old, row in self._schedulers.items()}
            )
        if "unit" in frame:
            columns["problem"] = frame["problem"].map({old: problem.id for old, problem in self._of_problem.items()})
            columns["protocol"] = frame["protocol"].map({old: row["protocol"] for old, row in self._protocols.items()})
            shared = pd.DataFrame(columns | {name: frame[name] for name in ("decision", "eval_seed")})
            counts = frame["unit"].map(episodes["unit"].value_counts())
            keys = zip(*(shared[name].tolist() for name in UNIT_COLUMNS), counts.tolist(), strict=True)
            columns["unit"] = pd.Series([content_id(key) for key in map(list, keys)], frame.index)
        for name, found in columns.items():
            if found.isna().any():
                raise UserError(
                    f"{self._source}: {name} {frame.loc[found.isna()].iloc[0].get(name)!r}: not in its plan"
                )
        kept = frame.drop(columns=[n for n in frame if n in _WORDS or (n in _OF_TRAINING and table in _PLAYED)])
        return kept.assign(**columns)

    def to_json(self) -> dict[str, Any]:
        """The plan in the form of this version."""
        planned = {each["name"]: each["columns"]["trial_id"] for each in self._plan["trainings"]}
        units = [
            EvaluationUnit(
                self.names.get(each["scheduler"], each["scheduler"]),
                self._ids[each["columns"]["trial_id"]] if "columns" in each else self._ids[planned[each["scheduler"]]],
                "columns" not in each,
                problem,
                self._protocols[each["protocol"]]["protocol"],
                each["decision"],
                self._evaluation["episodes"],
                each["features"],
            )
            for each in self._plan["evaluations"]
            for problem in [self._problems[each["problem"]]]
        ]
        trials = tuple(Trial(training.config) for training in self._trainings.values())
        content = Plan(cast(Any, None), trials, tuple(units)).to_json()
        for each, (name, training) in zip(content["trainings"], self._trainings.items(), strict=True):
            each |= {"name": self.names[name], "trial": merged(None, each["trial"], training.gone)}
        return content


def _former_id(content: Any) -> str:
    """The digest of 0.3."""
    return digest({"content": content, "format": FORMER_FORMAT})


def _given(text: str, old: str) -> Row:
    """The row of `schedulers` of a rule or a given policy; of a policy that is not there any more, its old name."""
    spec = parse_scheduler(text)
    try:
        return scheduler_row(spec)
    except UserError:
        return {"scheduler": content_id(old), "kind": "policy", "name": spec.label, **described({"policy": old})}
