"""Families of verdicts that are corrected together, and the primary endpoint of a problem.

A family is one question in one setting: all its pairs at all scales in the primary endpoint. The other outcomes of the
question are a second family. Every page corrects by these families, whatever part of them it shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from ..labels import OUTCOMES
from .intervals import holm
from .summaries import Difference

QUESTIONS = {
    "SRR": "Does SRR help?",
    "rule": "Does learning beat the rule?",
    "learned": "Which learned method is better?",
    "rules": "Which rule is better?",
}
TESTED = tuple(name for name in OUTCOMES if name != "unfinished")
"""Outcomes with a verdict. Unfinished tasks mirror the completed ones."""


def endpoint(rows: pd.DataFrame) -> str:
    """The primary endpoint of rows of one setting: their column `endpoint` (docs/statistics.md)."""
    return str(rows["endpoint"].iloc[0]) if len(rows) else TESTED[0]


def has_srr(one: Mapping[str, Any]) -> bool:
    """Whether a training, by the columns of its rows, has SRR."""
    return bool(one["lambda_decorrelation"] or one["lambda_kl"])


def question(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """Which of the QUESTIONS a pair answers, by the columns of their rows: SRR's if they are equal but for it."""
    learned = [one["kind"] == "learned" for one in (first, second)]
    if not all(learned):
        return "rule" if any(learned) else "rules"
    is_same = first["apart_from_srr"] == second["apart_from_srr"]
    return "SRR" if is_same and has_srr(first) != has_srr(second) else "learned"


def adjust(
    compared: Sequence[Mapping[str, Difference]], questions: Sequence[str], primary: str
) -> list[dict[str, Difference]]:
    """The comparisons with Holm's p-values: at most 5 % of families contain a false verdict.

    An outcome that differs in no episode has no p-value and is in no family. Two outcomes with the same differences,
    such as the responses of completed and of all tasks if every task completes, are tested once and share the p-value.

    Args:
        compared: outcome -> difference, for each pair at each scale.
        questions: of each of these, a key of QUESTIONS.
        primary: the primary endpoint.
    """
    families: dict[tuple[str, bool], list[tuple[int, str]]] = {}
    twins: dict[tuple[int, str], str] = {}
    for position, (found, asked) in enumerate(zip(compared, questions, strict=True)):
        # The primary endpoint first: a second outcome with the same differences then takes over its p-value.
        for metric in sorted(TESTED, key=lambda name: name != primary):
            own = found[metric]
            twin = next((m for m in TESTED if m != metric and (position, m) not in twins and found[m].same(own)), None)
            if twin is not None and metric != primary:
                twins[position, metric] = twin
            elif not np.isnan(own.p):
                families.setdefault((asked, metric == primary), []).append((position, metric))
    result = [dict(found) for found in compared]
    for members in families.values():
        # Each family by itself: questions do not pay for each other.
        adjusted = holm(np.array([compared[position][metric].p for position, metric in members]))
        for (position, metric), p in zip(members, adjusted, strict=True):
            result[position][metric] = replace(compared[position][metric], p_adjusted=float(p))
    for (position, metric), twin in twins.items():
        result[position][metric] = replace(result[position][metric], p_adjusted=result[position][twin].p_adjusted)
    return result
