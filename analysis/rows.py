"""Rows of one setting, the order of the variants, what they observe, and which are shown if there are too many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from rllib_scale.errors import UserError
from rllib_scale.results.columns import OBSERVABILITY

from .labels import LOWER_IS_BETTER
from .methods import METHODS

MOST_SHOWN = 12
"""Learned variants that figures and pages show at most, the best ones; files hold all. Rules are always shown."""


class Setting(NamedTuple):
    """A table or figure holds rows of one setting: others answer another question."""

    scenario: str
    mask: str
    decision: str

    @property
    def title(self) -> str:
        """In words."""
        return f"Scenario {self.scenario}, mask {self.mask}, decision {self.decision}"


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
    return episodes["family"].notna()


def setting_label(setting: Setting, every: list[Setting]) -> str:
    """The scenario and what else differs among the settings: "steady-0.7", "paper, mask feasible"."""
    parts = [setting.scenario]
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


def select(episodes: pd.DataFrame, scenario: str, mask: str, decision: str) -> pd.DataFrame:
    """The rows of one setting; a scenario may be one of several names of its world."""
    names = [each for each in episodes["scenario"].unique() if scenario in (each, *str(each).split(" = "))]
    chosen = (episodes["mask"] == mask) & (episodes["decision"] == decision) & episodes["scenario"].isin(names)
    return episodes[chosen.fillna(False).astype(bool)]


def asked_alike(variant: str, others: Iterable[str], asked: Mapping[str, str]) -> list[str]:
    """Of several variants of a rule the one that was asked as a variant was, else all; `asked` is of `ways`."""
    others = list(others)
    return [other for other in others if asked[other] == asked[variant]] or others


def ways(rows: pd.DataFrame) -> dict[str, str]:
    """Variant -> how it was asked in rows of one setting, in words that are not those of all."""
    asked = rows.drop_duplicates("variant").set_index("variant")["asked"].astype(str).str.split("; ")
    common = set[str]().union(*asked).intersection(*asked)
    return {str(name): "; ".join(part for part in parts if part not in common) for name, parts in asked.items()}


def asked_note(rows: pd.DataFrame) -> str | None:
    """One line if the variants of a setting were not all asked alike; else None."""
    return _unlike(pd.Series(ways(rows), dtype=str), "Not all are asked alike")


def observability_note(table: pd.DataFrame) -> str | None:
    """One line if the variants of a ranking do not observe the same; else None.

    Args:
        table: with the columns variant and observability.
    """
    rows = table.drop_duplicates(["variant", OBSERVABILITY]).set_index("variant")
    return _unlike(rows[OBSERVABILITY], "The methods do not all observe the same")


def _unlike(values: pd.Series, what: str) -> str | None:
    """A line that names the variants, the index, with other values than most have; None if all have the same."""
    groups = values.groupby(values, sort=True)
    if groups.ngroups < 2:
        return None
    most = groups.size().idxmax()
    others = [f"{', '.join(map(str, own.index))}: {value}" for value, own in groups if value != most]
    return f"{what}: {'; '.join(others)}; the others: {most}."


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


def left_out(tables: Iterable[tuple[pd.DataFrame, str]]) -> tuple[frozenset[str], str]:
    """The variants that are too many to be shown, and a sentence that says so, else "".

    Args:
        tables: tables of `tables.methods` by test_servers and variant, and a metric of each.

    Returns:
        All but the rules and the MOST_SHOWN learned variants with the lowest mean rank over tables and scales.
    """
    parts = []
    for table, metric in tables:
        learned = table[table["seeds"] > 0]
        values = learned[metric].astype(float) * (1 if metric in LOWER_IS_BETTER else -1)
        ranks = values.groupby(learned["test_servers"]).rank()
        parts.append(table[["variant"]].assign(learned=table["seeds"] > 0, rank=ranks))
    every = pd.concat(parts) if parts else pd.DataFrame(columns=["variant", "learned", "rank"])
    means = every[every["learned"].astype(bool)].groupby("variant")["rank"].mean()
    if len(means) <= MOST_SHOWN:
        return frozenset(), ""
    said = f"Shown are the {MOST_SHOWN} best of {len(means)} learned variants by mean rank."
    return frozenset(means.sort_values(kind="stable").index[MOST_SHOWN:]), said
