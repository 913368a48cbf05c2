"""Rows of one setting, the order of the variants, and what they observe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from rllib_scale.config import family
from rllib_scale.errors import UserError
from rllib_scale.results.columns import OBSERVABILITY

from .methods import METHODS


class Setting(NamedTuple):
    """A table or figure holds rows of one setting: others answer another question."""

    scenario: str
    mask: str
    decision: str
    changes: str = ""
    """What differs from the scenario in the world that is played."""

    @property
    def title(self) -> str:
        """In words."""
        changes = f" with {self.changes}" if self.changes else ""
        return f"Scenario {self.scenario}{changes}, mask {self.mask}, decision {self.decision}"


SETTING = Setting._fields
NO_SETTING = Setting("", "", "")
PAPER_SETTING = Setting("paper", "none", "argmax")
INVALID = ("invalid_no_fit", "invalid_busy_avoidable", "invalid_busy_unavoidable")
"""Columns with the invalid decisions, by cause."""


def settings(episodes: pd.DataFrame) -> list[Setting]:
    """The settings of a frame, the paper's first."""
    present = {Setting(*map(str, values)) for values in episodes[list(SETTING)].drop_duplicates().to_numpy()}
    return sorted(present, key=lambda setting: (setting != PAPER_SETTING, setting))


def of_families(episodes: pd.DataFrame) -> pd.Series:
    """Whether each row is of a family of problems, whose numbers of servers are no scales to compare."""
    return episodes["scenario"].isin(family.SCENARIOS)


def setting_label(setting: Setting, every: list[Setting]) -> str:
    """The scenario and what else differs among the settings: "steady-0.7", "paper, mask feasible"."""
    parts = [f"{setting.scenario} with {setting.changes}" if setting.changes else setting.scenario]
    for name in ("mask", "decision"):
        if len({getattr(other, name) for other in every if other.scenario == setting.scenario}) > 1:
            parts.append(f"{name} {getattr(setting, name)}")
    return ", ".join(parts)


def without_common(labels: Sequence[str]) -> tuple[list[str], str]:
    """Labels of settings without the changes that all have, and those changes.

    >>> without_common(["agents with a=1; b=2", "agents with a=1; b=3", "agents with a=1"])
    (['agents with b=2', 'agents with b=3', 'agents'], 'a=1')
    """
    split = [(head, changes.split("; ")) for head, _, changes in (each.partition(" with ") for each in labels)]
    common = [each for each in split[0][1] if all(each in changes for _, changes in split)] if len(split) > 1 else []
    own = [(head, "; ".join(each for each in changes if each not in common)) for head, changes in split]
    return [f"{head} with {changes}" if changes else head for head, changes in own], "; ".join(filter(None, common))


def select(episodes: pd.DataFrame, scenario: str, mask: str, decision: str, changes: str = "") -> pd.DataFrame:
    """The rows of one setting."""
    setting = Setting(scenario, mask, decision, changes)
    chosen = pd.Series(True, index=episodes.index)
    for name, value in setting._asdict().items():
        chosen &= (episodes[name] == value).fillna(False).astype(bool)
    return episodes[chosen]


def protocols(rows: pd.DataFrame) -> dict[str, tuple[str, str]]:
    """Variant -> how it was asked in rows of one setting: the digest of the protocol, and how it differs in words."""
    firsts = rows.drop_duplicates("variant")
    return {str(v): (str(p), str(a)) for v, p, a in firsts[["variant", "protocol", "asked"]].itertuples(index=False)}


def asked_alike(variant: str, others: Iterable[str], asked: Mapping[str, tuple[str, str]]) -> list[str]:
    """Of several variants of a rule those that a variant is compared with.

    The one that was asked as the variant was; else the one that was asked as the scenario says; else all.
    """
    others = list(others)
    own = [other for other in others if asked[other][0] == asked[variant][0]]
    return own or [other for other in others if not asked[other][1]] or others


def asked_note(rows: pd.DataFrame) -> str | None:
    """One line if some variants were not asked as the scenario says; else None."""
    by_words: dict[str, list[str]] = {}
    for variant, (_, words) in protocols(rows).items():
        if words:
            by_words.setdefault(words, []).append(variant)
    if not by_words:
        return None
    said = "; ".join(f"{', '.join(names)} with {words}" for words, names in by_words.items())
    return f"Not asked as the scenario says: {said}."


def observability_note(table: pd.DataFrame) -> str | None:
    """One line if the variants of a ranking do not observe the same; else None.

    Args:
        table: with the columns variant and observability.
    """
    rows = table.drop_duplicates(["variant", OBSERVABILITY])
    groups = rows.groupby(OBSERVABILITY, sort=True)["variant"]
    if groups.ngroups < 2:
        return None
    most = groups.size().idxmax()
    others = [f"{', '.join(map(str, names))}: {observed}" for observed, names in groups if observed != most]
    return f"The methods do not all observe the same: {'; '.join(others)}; the others: {most}."


def require_one_setting(episodes: pd.DataFrame) -> None:
    """Refuse a frame of several scenarios, masks or decision rules.

    Raises:
        UserError: naming the column and its values.
    """
    for column in SETTING:
        values = sorted(str(value) for value in episodes[column].unique())
        if len(values) > 1:
            raise UserError(
                f"the frame mixes {column}s: {', '.join(values)}; a table or figure takes one, "
                "chosen by analysis.select"
            )


def variants(frame: pd.DataFrame) -> list[str]:
    """The variants of a frame: learned methods before rules, each kind in its fixed order, then by name."""
    order = {name: position for position, name in enumerate(METHODS)}
    rows = frame[["variant", "method"]].drop_duplicates()
    heuristic = set(frame.loc[frame["kind"] == "heuristic", "variant"].unique()) if "kind" in frame else set()
    keyed = [(v in heuristic, order.get(m, len(order)), str(m), str(v)) for v, m in rows.itertuples(index=False)]
    return [variant for *_, variant in sorted(keyed)]
