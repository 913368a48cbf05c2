"""The page of the book: predictions and measurements, misses first."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.receipts.book import ALL, HERE, PARTS, Cliff, Measured, Predicted, Receipt, Values, distances

NEAR = math.log(1.25)
"""A size is right within this."""
LEVEL = math.log(1.1)
"""Less of a difference has no sign."""
PAGE = HERE.parents[1] / "analysis" / "studies" / "receipts" / "README.md"
NAMES = {
    "output_s": ("output", "tokens/s"),
    "requests_s": ("requests", "1/s"),
    "total_s": ("duration", "s"),
    "ttft_s": ("first token, mean", "s"),
    "ttft_p50_s": ("first token, median", "s"),
    "ttft_p90_s": ("first token, p90", "s"),
    "ttft_p95_s": ("first token, p95", "s"),
    "ttft_p99_s": ("first token, p99", "s"),
    "engine_ttft_s": ("first token at the engine, mean", "s"),
    "latency_s": ("latency, mean", "s"),
    "latency_p50_s": ("latency, median", "s"),
    "latency_p90_s": ("latency, p90", "s"),
    "latency_p95_s": ("latency, p95", "s"),
    "latency_p99_s": ("latency, p99", "s"),
    "between_s": ("between tokens, mean", "s"),
    "between_p50_s": ("between tokens, median", "s"),
    "between_p90_s": ("between tokens, p90", "s"),
    "input_s": ("input", "tokens/s"),
    "hit_rate": ("hit rate", "share"),
    "prefilled": ("prefill", "tokens"),
}
"""Metric -> its name and unit."""
FILES = ("setting", "predicted", "measured")
"""Files of a receipt, each a .yaml."""
MOST = 3
"""Absolute misses that are named of a receipt."""
REGIME_METRICS = ("output_s", "latency_s", "ttft_s")
ENGINE_RUNS = PAGE.parents[1] / "real-engines" / "runs.csv"
ENGINE_CLIFF = 1.0
"""Contexts over memory."""


@dataclass(frozen=True)
class Gain:
    """A policy against the baseline at a load: ratio of a metric, predicted and measured."""

    policy: str
    metric: str
    load: str
    predicted: float
    measured: float

    @property
    def counts(self) -> bool:
        """Whether the measured one has a sign."""
        return abs(math.log(self.measured)) > LEVEL

    @property
    def sign(self) -> bool:
        """Whether both are on the same side of 1."""
        return math.log(self.predicted) * math.log(self.measured) > 0

    @property
    def size(self) -> bool:
        """Whether it is within 25 %."""
        return abs(math.log(self.predicted / self.measured)) <= NEAR


def gains(receipt: Receipt, played: Values | None = None) -> list[Gain]:
    """All that can be compared of a receipt; `played` in place of what was predicted."""
    setting, predicted, measured = receipt.setting, receipt.predicted, receipt.measured
    assert predicted is not None
    assert measured is not None
    base, found, values = setting.baseline, list[Gain](), played or predicted.values
    for policy in list(setting.policies)[1:]:
        for metric in setting.compare:
            for load in setting.loads:
                ours = _ratio(values, policy, base, metric, load)
                given = measured.gains.get(policy, {}).get(metric, {}).get(load)
                theirs = given or _ratio(measured.values, policy, base, metric, load)
                if ours and theirs:
                    found.append(Gain(policy, metric, load, ours, theirs))
    return found


def _ratio(values: Values, policy: str, base: str, metric: str, load: str) -> float | None:
    own, other = (values.get(name, {}).get(metric, {}).get(load) for name in (policy, base))
    return own / other if own and other else None


def headlines(receipt: Receipt, played: Values | None = None) -> list[Gain]:
    """The size of a receipt: its first metric at its headline, of each policy."""
    metric, load = receipt.setting.compare[0], receipt.setting.headline
    return [gain for gain in gains(receipt, played) if gain.metric == metric and gain.load == load]


def pairs(receipt: Receipt) -> tuple[int, int]:
    """Pairs of policies that differ by more than 10 % in the first metric at a load: in order, and all."""
    setting, predicted, measured = receipt.setting, receipt.predicted, receipt.measured
    assert predicted is not None
    assert measured is not None
    right = count = 0
    names = list(setting.policies)
    for load in setting.loads:
        for at, one in enumerate(names):
            for other in names[at + 1 :]:
                theirs = _ratio(measured.values, other, one, setting.compare[0], load)
                if theirs is None and one == setting.baseline:
                    theirs = measured.gains.get(other, {}).get(setting.compare[0], {}).get(load)
                ours = _ratio(predicted.values, other, one, setting.compare[0], load)
                if ours and theirs and abs(math.log(theirs)) > LEVEL:
                    count += 1
                    right += math.log(ours) * math.log(theirs) > 0
    return right, count


def regimes(book: list[Receipt]) -> dict[tuple[str, str], list[float]]:
    """Predicted over measured at each load of each policy, by metric and by where its own cliff was measured to be."""
    found: dict[tuple[str, str], list[float]] = {}
    for receipt in book:
        cliff, predicted, measured = receipt.setting.cliff, receipt.predicted, receipt.measured
        if cliff is None or predicted is None or measured is None:
            continue
        for policy, by_metric in measured.values.items():
            of = by_metric.get(cliff.metric, {})
            loads = [load for load in receipt.setting.loads if load in of and load != ALL]
            beyond = [load for load in loads if _is_beyond(of[load], cliff)]
            for load in loads:
                where = "past" if beyond and loads.index(load) > loads.index(beyond[0]) else "below"
                where = "at" if beyond and load == beyond[0] else where
                for metric in REGIME_METRICS:
                    ours, theirs = (
                        values.get(metric, {}).get(load) for values in (predicted.values[policy], by_metric)
                    )
                    if ours and theirs:
                        found.setdefault((metric, where), []).append(ours / theirs)
    return found


def engine_regimes() -> dict[tuple[str, str], list[float]]:
    """The same of the runs of a real engine that are committed."""
    found: dict[tuple[str, str], list[float]] = {}
    with ENGINE_RUNS.open(encoding="utf-8", newline="") as lines:
        for run in csv.DictReader(lines):
            load = float(run["load"])
            where = "below" if load < ENGINE_CLIFF else "at" if load == ENGINE_CLIFF else "past"
            for metric, column in zip(REGIME_METRICS, ("output_per_s", "call_s", "first_s"), strict=True):
                found.setdefault((metric, where), []).append(float(run[f"{column}_model"]) / float(run[column]))
    return found


def _is_beyond(value: float, cliff: Cliff) -> bool:
    return value > cliff.limit if cliff.beyond == "above" else value < cliff.limit


def cliffs(receipt: Receipt) -> tuple[str, str] | None:
    """The first load beyond the cliff, predicted and measured; among the loads that were measured."""
    cliff, measured, predicted = receipt.setting.cliff, receipt.measured, receipt.predicted
    if cliff is None or measured is None or predicted is None:
        return None
    of = measured.values.get(cliff.policy, {}).get(cliff.metric, {})
    loads = [load for load in receipt.setting.loads if load in of and load != ALL]
    if not loads:
        return None
    found = []
    for values in (predicted.values[cliff.policy][cliff.metric], of):
        beyond = [load for load in loads if _is_beyond(values[load], cliff)]
        found.append(beyond[0] if beyond else f"past {loads[-1]}")
    return found[0], found[1]


def page(book: list[Receipt]) -> str:
    """The whole page."""
    return "\n".join([*_lines(book), ""])


def _lines(book: list[Receipt]) -> Iterator[str]:
    compared = [receipt for receipt in book if receipt.measured is not None and receipt.predicted is not None]
    yield from [*(HERE / "head.md").read_text(encoding="utf-8").splitlines(), ""]
    yield from [
        "## Counts",
        "",
        "| part | receipts | signs | pairs in order | sizes within 25 % | cliff |",
        "|---|---|---|---|---|---|",
    ]
    for part in PARTS:
        yield _count_line(part, [receipt for receipt in compared if receipt.setting.part == part])
    yield from ["", *_counts_text(compared), "", *_floor_text(compared), "", *_today(compared), ""]
    yield from ["## Misses", ""]
    for receipt in compared:
        yield from _misses(receipt)
    yield from ["", *(HERE / "trust.md").read_text(encoding="utf-8").splitlines(), "", *_regime_table(compared), ""]
    yield "## Receipts"
    for receipt in book:
        yield from ["", *_receipt(receipt)]


def _count_line(part: str, book: list[Receipt]) -> str:
    first = [gain for receipt in book for gain in headlines(receipt)]
    signs = [gain for gain in first if gain.counts]
    order = [pairs(receipt) for receipt in book]
    cliff = [found for receipt in book if (found := cliffs(receipt)) is not None]
    return (
        f"| {part} | {len(book)} | {sum(gain.sign for gain in signs)} of {len(signs)} "
        f"| {sum(right for right, _ in order)} of {sum(count for _, count in order)} "
        f"| {sum(gain.size for gain in first)} of {len(first)} "
        f"| {sum(ours == theirs for ours, theirs in cliff)} of {len(cliff)} |"
    )


def _counts_text(book: list[Receipt]) -> Iterator[str]:
    found = [gain for receipt in book for gain in gains(receipt)]
    signs = [gain for gain in found if gain.counts]
    yield (
        "Signs and sizes are those of each policy against the first one, in a receipt's first metric at its headline "
        "load; pairs are those of policies that differ by more than 10 % at a load. Over all metrics and loads "
        f"{sum(gain.sign for gain in signs)} of {len(signs)} gains that were measured above 10 % have the sign, and "
        f"{sum(gain.size for gain in found)} of {len(found)} the size within 25 %."
    )


def _floor_text(book: list[Receipt]) -> Iterator[str]:
    """Sizes where the cache is read at full bandwidth."""
    of = [(receipt, receipt.predicted.floor) for receipt in book if receipt.predicted and receipt.predicted.floor]
    main = [gain for receipt, _ in of for gain in headlines(receipt)]
    floor = [gain for receipt, values in of for gain in headlines(receipt, values)]
    yield (
        "How much rests on one coefficient: with the cache read at the GPU's full bandwidth, in place of BLIS's 1.95 "
        f"times that time, {sum(gain.size for gain in floor)} in place of {sum(gain.size for gain in main)} of "
        f"{len(main)} sizes on engines whose coefficients follow from facts are within 25 %: "
        + "; ".join(
            f"{receipt.name} {gain.predicted:.2f} ({at_floor.predicted:.2f}) predicted, {gain.measured:.2f} measured"
            for receipt, values in of
            for gain, at_floor in zip(headlines(receipt), headlines(receipt, values), strict=True)
        )
        + "."
    )


def _today(book: list[Receipt]) -> Iterator[str]:
    """How far the engine of today is from the predictions."""
    yield from ["## Today's engine", ""]
    yield (
        "Predictions of blind and half seen receipts stay as they were committed before their results were opened "
        "(8fbbd760), and all counts are of them. Seen ones may be predicted again; the receipt then says when and why. "
        f"Played by today's engine, {sum(receipt.today is None for receipt in book)} of {len(book)} receipts are "
        "reproduced to .1 %. Of the others, |ln| of today's values over the predicted ones, and the sizes:"
    )
    yield from ["", "| receipt | median | largest | predicted / today / measured |", "|---|---|---|---|"]
    for receipt in book:
        if receipt.predicted is None or receipt.today is None:
            continue
        off, both = sorted(distances(receipt.predicted, receipt.today)), headlines(receipt, receipt.today.values)
        sizes = "; ".join(
            f"`{then.policy}` {then.predicted:.2f} / {now.predicted:.2f} / {then.measured:.2f}"
            for then, now in zip(headlines(receipt), both, strict=True)
        )
        yield f"| {receipt.name} | {_middle(off):.3f} | {off[-1]:.3f} | {sizes} |"


def _regime_table(book: list[Receipt]) -> Iterator[str]:
    yield (
        "Predicted over measured, of receipts with a cliff, and of the real engine, whose cliff is where contexts fill "
        "its memory: the median, and the middle 80 % of the counted values."
    )
    yield from ["", "| | below its cliff | at it | past it |", "|---|---|---|---|"]
    for of, found in (("receipts", regimes(book)), ("real engine", engine_regimes())):
        for metric in REGIME_METRICS:
            cells = [_middle_80(sorted(found.get((metric, where), []))) for where in ("below", "at", "past")]
            yield f"| {of}: {NAMES[metric][0]} | " + " | ".join(cells) + " |"


def _middle_80(ratios: list[float]) -> str:
    edge = len(ratios) // 10
    return f"{_middle(ratios):.2f} ({ratios[edge]:.2f} to {ratios[-1 - edge]:.2f}; {len(ratios)})" if ratios else ""


def _middle(ordered: list[float]) -> float:
    return ordered[len(ordered) // 2]


def _misses(receipt: Receipt) -> Iterator[str]:
    assert receipt.measured is not None
    found = list[str]()
    for gain in headlines(receipt):
        if not gain.size or (gain.counts and not gain.sign):
            what = "sign" if gain.counts and not gain.sign else "size"
            found.append(
                f"{what} of `{gain.policy}`: {_times(gain.predicted)} predicted, {_times(gain.measured)} measured"
            )
    right, count = pairs(receipt)
    if right < count:
        found.append(f"order: {right} of {count} pairs")
    cliff = cliffs(receipt)
    if cliff is not None and cliff[0] != cliff[1]:
        found.append(f"cliff: {cliff[0]} predicted, {cliff[1]} measured")
    found += _far(receipt)
    if found:
        yield f"- **{receipt.setting.title}** ({receipt.setting.part}). {'; '.join(found)}."
        yield from (f"  - Likely cause: {cause}" for cause in receipt.measured.causes)


def _far(receipt: Receipt) -> list[str]:
    """The largest of those misses of a metric that are over 25 % in the middle of the loads."""
    middles = [(_middle(sorted(ratios)), policy, metric) for policy, metric, ratios in _absolute(receipt)]
    far = sorted(middles, key=lambda each: -abs(math.log(each[0])))[:MOST]
    return [
        f"{NAMES[metric][0]} of `{policy}` {_times(middle)} the measured one"
        for middle, policy, metric in far
        if abs(math.log(middle)) > NEAR
    ]


def _absolute(receipt: Receipt) -> Iterator[tuple[str, str, list[float]]]:
    """Policy, metric, predicted over measured at each load."""
    predicted, measured = receipt.predicted, receipt.measured
    assert predicted is not None
    assert measured is not None
    for policy in receipt.setting.policies:
        for metric in receipt.setting.compare:
            of = measured.values.get(policy, {}).get(metric, {})
            found = [
                predicted.values[policy][metric][load] / of[load] for load in receipt.setting.loads if of.get(load)
            ]
            found = [ratio for ratio in found if ratio > 0]
            if found:
                yield policy, metric, found


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times" if ratio < 10 else f"{ratio:.0f} times"


def _receipt(receipt: Receipt) -> Iterator[str]:
    setting = receipt.setting
    pods = f"{setting.pods} pod{'s' if setting.pods > 1 else ''}"
    played = [f"`{name}`: {of.about}, played as `{of.rule}`" for name, of in setting.policies.items()]
    yield from [f"### {setting.title}", ""]
    yield f"*{setting.part}*. Source: {setting.source}. Engine `{setting.engine}`, {pods}. Rebuilt: {setting.rebuilt}."
    yield f"Policies: {'; '.join(played)}."
    if setting.again:
        yield f"Predicted again: {setting.again}."
    files = (f"[{name}](../../../benchmarks/receipts/{receipt.name}/{name}.yaml)" for name in FILES)
    yield f"Data of {receipt.name}: {', '.join(files)}."
    if receipt.predicted is None:
        return
    cliff = cliffs(receipt)
    if cliff is not None and setting.cliff is not None:
        what = f"{NAMES[setting.cliff.metric][0]} of `{setting.cliff.policy}` {setting.cliff.beyond}"
        yield f"Cliff ({what} {setting.cliff.limit:g}): {cliff[0]} predicted, {cliff[1]} measured."
    yield ""
    yield from _table(receipt, receipt.predicted, receipt.measured)


def _table(receipt: Receipt, predicted: Predicted, measured: Measured | None) -> Iterator[str]:
    setting, known = receipt.setting, measured.values if measured is not None else {}
    given = [known, {} if measured is None else measured.gains]
    loads = [load for load in setting.loads if any(_is_shown(setting.compare, of, load) for of in given)]
    loads = loads or (setting.loads if len(setting.loads) > 2 else setting.loads[:1])
    yield f"Predicted / measured{' (not opened yet)' if measured is None else ''}:"
    yield ""
    yield "| " + " | ".join(["metric", "policy", *loads]) + " |"
    yield "|---" * (len(loads) + 2) + "|"
    for metric in setting.compare:
        for policy in setting.policies:
            ours, theirs = predicted.values[policy][metric], known.get(policy, {}).get(metric, {})
            cells = [f"{_number(ours[load])} / {_number(theirs[load]) if load in theirs else '?'}" for load in loads]
            yield f"| {NAMES[metric][0]}, {NAMES[metric][1]} | `{policy}` | " + " | ".join(cells) + " |"
    for policy, by_metric in (measured.gains if measured is not None else {}).items():
        for metric, of in by_metric.items():
            cells = []
            for load in loads:
                ratio = _ratio(predicted.values, policy, setting.baseline, metric, load)
                cells.append(f"{ratio or math.nan:.2f} / {of[load]:.2f}" if load in of else "")
            yield f"| {NAMES[metric][0]}, times that of `{setting.baseline}` | `{policy}` | " + " | ".join(cells) + " |"


def _is_shown(metrics: list[str], known: Values, load: str) -> bool:
    return any(load in of.get(metric, {}) for of in known.values() for metric in metrics)


def _number(value: float) -> str:
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
