"""The book of receipts: published measurements of routers and gates on real engines, predicted by the simulator.

`python -m benchmarks receipts` plays all of it, compares what it finds with the predictions that are committed, and
writes the page. `python -m benchmarks.receipts NAME ...` writes predictions of receipts whose result is not there yet.
"""

from __future__ import annotations

import math
from pathlib import Path

from benchmarks.measure import Measure
from benchmarks.receipts.book import Predicted, engines, receipts
from benchmarks.receipts.page import PAGE, page
from rllib_scale.files import write_atomic


def run(rounds: int, sessions: Path | None = None, names: tuple[str, ...] = ()) -> list[Measure]:
    """All measures; writes the page from the predictions that are committed.

    Args:
        rounds: not used: the seeds of a receipt are part of it.
        sessions: recorded ones, in the format of kv-cache-tester; without them the receipts that need them are left
            out.
        names: receipts to play; all by default.
    """
    from benchmarks.receipts.player import predict  # the page alone needs no compiled code

    book, found = receipts(), list[Measure]()
    for receipt in book:
        known, needs = receipt.predicted, receipt.setting.workload.kind == "recorded"
        if known is None or (needs and sessions is None) or (names and receipt.name not in names):
            continue
        again = predict(receipt.setting, engines()[receipt.setting.engine], sessions)
        off = max(_off(known, again), default=0.0)
        found.append(
            Measure(
                f"{receipt.name}: largest |ln| to the committed prediction", "", off, bar=1e-3, aim=1e-3, at_most=True
            )
        )
    write_atomic(PAGE, lambda path: path.write_text(page(book), encoding="utf-8"))
    return found


def _off(known: Predicted, again: Predicted) -> list[float]:
    pairs = [(known.values, again.values), (known.floor, again.floor)]
    return [
        abs(math.log(again_of[policy][metric][load] / value))
        for of, again_of in pairs
        for policy, by_metric in of.items()
        for metric, by_load in by_metric.items()
        for load, value in by_load.items()
        if value > 0
    ]
