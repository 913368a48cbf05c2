"""The book of receipts: its data, its player, and that blind predictions came before their results."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path

import pytest

from benchmarks.receipts import run
from benchmarks.receipts.book import ALL, Ladder, Receipt, engines, receipts
from benchmarks.receipts.page import PAGE, gains, page
from benchmarks.receipts.player import predict

ROOT = Path(__file__).parents[1]
SESSIONS = ROOT / "shared" / "traces" / "kv-cache-tester-350.jsonl.gz"
BOOK = receipts()
NAMES = [receipt.name for receipt in BOOK]


@pytest.mark.parametrize("receipt", BOOK, ids=NAMES)
def test_a_setting_plays_and_its_files_fit_it(receipt: Receipt) -> None:
    setting = receipt.setting
    tiny = setting.tiny()
    found = predict(tiny, engines()[setting.engine], None)
    assert found.values.keys() == setting.policies.keys()
    for by_metric in found.values.values():
        assert [*by_metric] == setting.metrics
        assert all(by_load.keys() == set(tiny.loads) for by_load in by_metric.values())
        assert all(math.isfinite(value) for by_load in by_metric.values() for value in by_load.values())
    assert setting.headline in setting.loads
    for values in filter(
        None, (receipt.predicted and receipt.predicted.values, receipt.measured and receipt.measured.values)
    ):
        assert values.keys() <= setting.policies.keys()
        for by_metric in values.values():
            assert by_metric.keys() <= set(setting.metrics)
            assert all(by_load.keys() <= set(setting.loads) for by_load in by_metric.values())
    if receipt.measured is not None:
        assert receipt.predicted is not None
        assert gains(receipt)


def test_a_request_alone_takes_what_its_engine_says() -> None:
    """By the formula of a step: one prefill in one step, and a step for each further token."""
    receipt = next(receipt for receipt in BOOK if isinstance(receipt.setting.workload, Ladder))
    work = Ladder(
        kind="ladder",
        groups=1,
        prompts=1,
        prefix_tokens=200,
        question_tokens=100,
        output_tokens=5,
        stages=[(1.0, 1.0)],
        warm_up=0,
    )
    metrics = ["ttft_s", "latency_s", "between_s", "hit_rate"]
    setting = receipt.setting.model_copy(update={"workload": work, "pods": 1, "compare": metrics, "cliff": None})
    engine = engines()[setting.engine]
    pod, values = engine.replica(), predict(setting, engine, None).values[setting.baseline]
    first = pod.step_s + pod.call_s + 300 * pod.prefill_s + pod.attention_s * 300 * 299 / 2
    steps = [pod.step_s + pod.call_s + pod.context_s * (300 + k) for k in range(4)]
    assert values["latency_s"][ALL] == pytest.approx(first + sum(steps) + pod.request_s, rel=1e-3)
    assert values["between_s"][ALL] == pytest.approx(sum(steps) / 4, rel=1e-3)
    assert values["hit_rate"][ALL] == 0


@pytest.mark.parametrize("receipt", [each for each in BOOK if each.setting.part != "seen"], ids=lambda each: each.name)
def test_a_blind_prediction_came_before_its_result(receipt: Receipt) -> None:
    if receipt.measured is None:
        pytest.skip("its result has not been opened")
    predicted, measured = (_commits(receipt.folder / f"{name}.yaml") for name in ("predicted", "measured"))
    if not predicted or not measured or predicted[-1] == measured[-1]:
        pytest.skip("the history is not here")
    order = subprocess.run(["git", "merge-base", "--is-ancestor", predicted[0], measured[-1]], cwd=ROOT, check=False)
    assert order.returncode == 0, "the prediction was changed after its result was there"


def _commits(path: Path) -> list[str]:
    """That touched a file, the newest first."""
    done = subprocess.run(
        ["git", "log", "--format=%H", "--", str(path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.split()


def test_the_page_is_of_the_data() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(BOOK)


@pytest.mark.slow
def test_the_predictions_are_reproduced() -> None:
    for measure in run(1, SESSIONS if SESSIONS.exists() else None):
        assert measure.verdict == "aim", measure
