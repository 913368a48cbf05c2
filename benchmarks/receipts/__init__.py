"""The book of receipts: published measurements of routers and gates on real engines, predicted by the simulator.

`python -m benchmarks receipts` plays all receipts, writes plays that differ from the committed predictions to
`today.yaml`, and writes the page. `python -m benchmarks.receipts NAME ...` writes predictions of receipts whose result
is not there yet.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.measure import Measure
from benchmarks.receipts.book import distances, engines, receipts
from benchmarks.receipts.page import PAGE, page
from rllib_scale.files import write_atomic

SAME = 1e-3
"""A play within this |ln| of a prediction reproduces it."""


def run(rounds: int, sessions: Path | None = None, names: tuple[str, ...] = ()) -> list[Measure]:
    """All measures; writes the page, and `today.yaml` of each receipt whose play differs from its prediction.

    Args:
        rounds: not used: the seeds of a receipt are part of it.
        sessions: recorded ones, in the format of kv-cache-tester; without them the receipts that need them are left
            out.
        names: receipts to play; all by default.
    """
    from benchmarks.receipts.player import predict  # the page alone needs no compiled code

    found = list[Measure]()
    for receipt in receipts():
        predicted, needs = receipt.predicted, receipt.setting.workload.kind == "recorded"
        if predicted is None or (needs and sessions is None) or (names and receipt.name not in names):
            continue
        again = predict(receipt.setting, engines()[receipt.setting.engine], sessions)
        off = max(distances(receipt.today or predicted, again), default=0.0)
        name = f"{receipt.name}: largest |ln| to the play that is committed"
        found.append(Measure(name, "", off, bar=SAME, aim=SAME, at_most=True))
        if max(distances(predicted, again), default=0.0) > SAME:
            receipt.write("today", again)
        else:
            (receipt.folder / "today.yaml").unlink(missing_ok=True)
    book = receipts()
    write_atomic(PAGE, lambda path: path.write_text(page(book), encoding="utf-8"))
    return found
