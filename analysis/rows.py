"""Rows of one setting, the order of the variants, and what they observe."""

from __future__ import annotations

import pandas as pd

from rllib_scale.config import family
from rllib_scale.errors import UserError
from rllib_scale.results.columns import OBSERVABILITY

from .methods import METHODS

SETTING = ("scenario", "mask", "decision")
"""A table or figure holds rows of one setting: others answer another question."""

PAPER_SETTING = ("paper", "none", "argmax")
INVALID = ("invalid_no_fit", "invalid_busy_avoidable", "invalid_busy_unavoidable")
"""Columns with the invalid decisions, by cause."""


def settings(episodes: pd.DataFrame) -> list[tuple[str, str, str]]:
    """The (scenario, mask, decision) combinations of a frame, the paper's first."""
    present = {(str(s), str(m), str(d)) for s, m, d in episodes[list(SETTING)].drop_duplicates().to_numpy()}
    return sorted(present, key=lambda setting: (setting != PAPER_SETTING, setting))


def of_families(episodes: pd.DataFrame) -> pd.Series:
    """Whether each row is of a family of problems, whose numbers of servers are no scales to compare."""
    return episodes["scenario"].isin(family.SCENARIOS)


def setting_label(setting: tuple[str, str, str], every: list[tuple[str, str, str]]) -> str:
    """The scenario and what else differs among the settings: "steady-0.7", "paper, mask feasible"."""
    parts = [setting[0]]
    for k in (1, 2):
        if len({other[k] for other in every if other[0] == setting[0]}) > 1:
            parts.append(f"{SETTING[k]} {setting[k]}")
    return ", ".join(parts)


def select(episodes: pd.DataFrame, scenario: str, mask: str, decision: str) -> pd.DataFrame:
    """The rows of one setting."""
    chosen = (episodes["scenario"] == scenario) & (episodes["mask"] == mask) & (episodes["decision"] == decision)
    return episodes[chosen.astype(bool)]


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
