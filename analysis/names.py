"""Names of what the ids in rows stand for: what differs among all that is loaded.

Each function takes a table of dimensions (`rllib_scale.results.columns`) and returns columns by id.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import pandas as pd

from rllib_scale.config import SCENARIOS, TrialConfig, digest
from rllib_scale.config.identity import ASKED, Settings, distinguishing, in_words, settings_in, world_of
from rllib_scale.config.methods import method_in
from rllib_scale.config.pinned import shown
from rllib_scale.results.tables import typed

from .paper import PAPERS

PLAYED_COLUMNS: dict[str, tuple[str, str]] = {
    "scenario": ("string", "named problem, 'with path=value; ...' that differ from it; 'a = b' if they are one world"),
    "test_servers": ("Int64", "servers at evaluation"),
    "family": ("string", "kind of random problems of which it is one; missing for another"),
    "number": ("Int64", "its number in the family; missing for another"),
    "endpoint": ("string", "column of the primary endpoint (docs/statistics.md)"),
    "world": ("string", "all its settings as JSON, but for the number of servers"),
}
ASKED_COLUMNS: dict[str, tuple[str, str]] = {
    "mask": ("string", "none or feasible"),
    "asked": ("string", "how else a policy is asked, where it differs among all that is loaded, 'path=value; ...'"),
}
SCHEDULER_COLUMNS: dict[str, tuple[str, str]] = {
    "method": ("string", "method; a rule with its parameters; or the label of a given policy"),
    "kind": ("string", "learned or heuristic, which a given policy is, too"),
    "train_seed": ("Int64", "seed of the training; missing for a heuristic"),
    "lambda_decorrelation": ("float64", "in force; 0 without SRR, NaN for a heuristic"),
    "lambda_kl": ("float64", "in force; 0 without SRR, NaN for a heuristic"),
    "overrides": ("string", "other settings that differ among the method's that are loaded, 'path=value; ...'"),
    "train_servers": ("Int64", "servers trained at; missing for a heuristic"),
    "epochs": ("Int64", "training epochs; missing for a heuristic"),
    "env_steps": ("Int64", "decisions trained on; missing for a heuristic and methods trained on whole episodes"),
    "variant": ("string", "what is compared: the method, and the settings that differ among its trainings"),
    "apart_from_srr": ("string", "what differs among all trainings that are loaded, but for their seed and SRR"),
    "of_paper": ("boolean", "whether it is trained as in the paper, but for the number of epochs"),
}
_WORDS = {
    "srr.lambda_decorrelation": "λ1={:g}",
    "srr.lambda_kl": "λ2={:g}",
    "env.cluster.servers": "trained at N={}",
    "algorithm.epochs": "{} epochs",
    "trained on": "trained on {}",
}
"""Settings that a name has in other words than 'path=value'."""
_ANY_EPOCHS = ("seed", "algorithm.epochs", "stop.epochs", "stop.env_steps")
"""Settings that may differ from the paper's."""
_OF_METHOD = ("algorithm", "network", "srr")
_LIKE_ANY = ("reward.", "observation.", "episode.mask")
"""Parts of a protocol by which an evaluation plays no other episodes, or that have a column."""


def problems(table: pd.DataFrame) -> pd.DataFrame:
    """PLAYED_COLUMNS by problem.

    Problems that are equal but for the number of servers have one name: their scenario, and what differs from it. A
    world that was asked for by several names has all of them.
    """
    table = table.reset_index(drop=True)
    every = {row: settings_in(json.loads(text)) for row, text in table["settings"].items()}
    table["endpoint"] = [_endpoint(own) for own in every.values()]
    table["test_servers"] = [own.pop("cluster.servers") for own in every.values()]
    table["world"] = [_text(own) for own in every.values()]
    table["scenario"] = pd.Series(_names(table, every), dtype="string")
    series, before = table.index.to_series(), None
    while before is None or not series.equals(before):  # rows that share any of these are of one series
        before = series
        for key in ("problem", "scenario", "world"):
            series = series.groupby(table[key]).transform("min")
    named = table.groupby(series)["scenario"].agg(lambda names: " = ".join(sorted(names.unique())))
    table["scenario"] = series.map(named).astype("string")
    table = table.drop_duplicates("problem").set_index("problem")
    alike = table["family"].isna() & table.duplicated(["scenario", "test_servers"], keep=False)  # of other versions
    table["scenario"] = table["scenario"].mask(alike, table["scenario"] + " (" + table.index + ")")
    return typed(table, PLAYED_COLUMNS)[[*PLAYED_COLUMNS]]


def _text(settings: Settings) -> str:
    return json.dumps(settings, sort_keys=True)


def _endpoint(settings: Settings) -> str:
    """Completed tasks where an episode ends while tasks wait, else the mean response of all tasks."""
    ends = settings.get("episode.arrivals_until_s", 0) is None and settings.get("service.name", "fixed") == "fixed"
    return "completed" if ends else "response_censored_s"


def _names(table: pd.DataFrame, every: Mapping[Any, Settings]) -> dict[Any, str]:
    """A scenario and what differs from it; or, if only its name is known, among the problems of its name and number."""
    found: dict[Any, str] = {}
    beside = table["number"].mask(table["scenario"].isin(SCENARIOS), table["test_servers"])
    for (name, number), rows in table.groupby(["scenario", beside], dropna=False):
        known = {None: _of_scenario(str(name), int(str(number)))} if name in SCENARIOS else {}
        told = distinguishing(known | {row: every[row] for row in rows.index})
        usual = told.pop(None, {})
        for row, own in told.items():
            words = in_words({path: value for path, value in own.items() if usual.get(path, ()) != value})
            found[row] = f"{name} with {words}" if words else str(name)
    return found


@cache
def _of_scenario(name: str, servers: int) -> Settings:
    """The world of a named scenario at a number of servers, without that number."""
    env = SCENARIOS[name].env
    with contextlib.suppress(ValueError):  # its scheduled changes name servers that are not there
        env = env.at_scale(servers)
    settings = settings_in(world_of(env, defaults=True))
    del settings["cluster.servers"]
    return settings


def protocols(table: pd.DataFrame) -> pd.DataFrame:
    """ASKED_COLUMNS by protocol."""
    every = {one: settings_in(json.loads(text)) for one, text in zip(table["protocol"], table["settings"], strict=True)}
    masks = [own.get("episode.mask") for own in every.values()]
    told = distinguishing(
        {one: {p: v for p, v in own.items() if not p.startswith(_LIKE_ANY)} for one, own in every.items()}
    )
    found = pd.DataFrame({"mask": masks, "asked": [in_words(own) for own in told.values()]}, index=pd.Index(every))
    return typed(found, ASKED_COLUMNS)


def schedulers(table: pd.DataFrame, played: pd.DataFrame) -> pd.DataFrame:
    """SCHEDULER_COLUMNS by scheduler; `played` is of `problems`."""
    table = table.set_index("scheduler")
    contents = {one: json.loads(text) for one, text in table["settings"].items()}
    every = {one: settings_in(content) for one, content in contents.items()}
    learned = table["kind"] == "training"
    told = distinguishing({one: _without(every[one], ("seed",)) for one in table.index[learned]})
    parts = {one: in_words({p: v for p, v in own.items() if p.startswith(_OF_METHOD)}) for one, own in told.items()}
    known = {part: method_in(contents[one]) for part, one in {part: one for one, part in parts.items()}.items()}
    methods = table["name"].where(~learned, [known[parts[one]] if one in parts else "" for one in table.index])
    worlds = dict(zip(played["world"], played["scenario"], strict=True))
    found: dict[Any, dict[str, Any]] = {}
    for (method, is_learned), rows in table.groupby([methods, learned]):
        own = distinguishing({one: told.get(one, every[one]) for one in rows.index})
        own = _trained_on(own, every, worlds) if is_learned else own
        for one, settings in own.items():
            words = _words(settings)
            found[one] = {"method": method, "kind": "learned" if is_learned else "heuristic"}
            found[one] |= {"variant": f"{method} ({', '.join(words)})" if words else method}
            found[one] |= {"overrides": in_words(_without(settings, ("srr",)))}
            if is_learned:
                found[one] |= _trained(contents[one], every[one], str(method))
                found[one] |= {"apart_from_srr": in_words(_without(told[one], ("srr",)))}
    columns = pd.DataFrame.from_dict(found, orient="index", columns=[*SCHEDULER_COLUMNS]).reindex(table.index)
    content = pd.Series({one: digest(_without(own, ("seed",))) for one, own in every.items()}, dtype="string")
    for beside in (" (version " + table["version"] + ")", " (" + content + ")"):
        again = columns.loc[columns.duplicated(["variant", "train_seed"], keep=False), "variant"]  # of other versions
        columns["variant"] += beside.where(columns["variant"].isin(again), "")
    return typed(columns, SCHEDULER_COLUMNS)


def _without(settings: Settings, sections: Iterable[str]) -> Settings:
    return {path: value for path, value in settings.items() if path.partition(".")[0] not in sections}


def _words(settings: Settings) -> list[str]:
    if settings.get("population"):
        return [f"member {settings['population'].rpartition(' ')[2]}"]
    return [
        _WORDS[path].format(value) if path in _WORDS and value is not None else f"{path}={shown(value)}"
        for path, value in settings.items()
    ]


def _trained_on(
    told: dict[Any, Settings], every: Mapping[Any, Settings], worlds: Mapping[str, str]
) -> dict[Any, Settings]:
    """The settings with the name of a problem in place of its settings, if each has one and names differ as they do."""
    own = {one: {p: v for p, v in settings.items() if _is_of_world(p)} for one, settings in told.items()}
    if not any(own.values()):
        return told
    names = {one: worlds.get(_world_of_training(every[one])) for one in told}
    pairs = {(names[one], _text(settings)) for one, settings in own.items()}
    if None in names.values() or not len(pairs) == len({name for name, _ in pairs}) == len({text for _, text in pairs}):
        return told
    return {
        one: {"trained on": names[one]} | {p: v for p, v in settings.items() if p not in own[one]}
        for one, settings in told.items()
    }


def _is_of_world(path: str) -> bool:
    """Whether a setting of a training is of the world that it plays, its number of servers apart."""
    section, _, rest = path.removeprefix("env.").partition(".")
    asked = ASKED.get(section, ())
    return path.startswith("env.") and path != "env.cluster.servers" and asked is not True and rest not in asked


def _world_of_training(settings: Settings) -> str:
    """Its world as that of an evaluation."""
    world = {path.removeprefix("env."): value for path, value in settings.items() if _is_of_world(path)}
    return _text(world | {p: "test" for p, v in world.items() if p in ("workload.trace.part", "service.part") and v})


def _trained(content: Mapping[str, Any], settings: Settings, method: str) -> dict[str, Any]:
    """Columns of a training by its own settings."""
    srr, steps = content.get("srr") or {}, settings.get("algorithm.steps_per_epoch")
    epochs = settings.get("stop.epochs") or settings.get("algorithm.epochs")
    if steps and (limit := settings.get("stop.env_steps")):
        epochs = -(-limit // steps)
    weights = {name: srr.get(name, 0.0) for name in ("lambda_decorrelation", "lambda_kl")}
    papers = _of_paper(method)
    return weights | {
        "train_seed": settings.get("seed"),
        "train_servers": settings.get("env.cluster.servers"),
        "epochs": epochs,
        "env_steps": epochs * steps if epochs and steps else None,
        "of_paper": all(papers.get(path, papers) == settings[path] for path in settings if path not in _ANY_EPOCHS),
    }


@cache
def _of_paper(method: str) -> Settings:
    """The settings of a training as in the paper."""
    return settings_in(TrialConfig.of(method).deciding(defaults=True)) if method in PAPERS else {}
