"""The image of cluster and queue by hand, which actions there are, and that their probabilities are theirs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from networks.probabilities import probabilities
from rllib_scale.config import DeepRMConfig
from rllib_scale.networks.deeprm import DeepRM
from rllib_scale.observation.answers import Answer
from rllib_scale.observation.starting import Starting
from small_moments import OBSERVATION, SMALL, TWO_FLOWS, moments, workload


def network(**sizes: float) -> DeepRM:
    torch.manual_seed(3)
    return DeepRM(
        OBSERVATION, SMALL.cluster, DeepRMConfig.model_validate({"name": "deeprm", "time_steps": 4, "queue": 2} | sizes)
    )


def test_an_image_by_hand() -> None:
    made = network(backlog=8)
    assert made.step_s == 4.0  # 16 GFLOP at 1 GFLOPS are 4 steps
    now = Starting(moments(TWO_FLOWS)[0])
    now.start(0, 1)  # 8 s and 4 of 8 GB on a slow row
    image = made.look(now, None)
    expected = [
        [0, 0, 0, 0],  # time that rows are taken
        [1, 1, 0, 0],
        [0, 0, 0, 0],
        [0, 0, 0, 0],  # and their memory
        [0.5, 0.5, 0, 0],
        [0, 0, 0, 0],
        [1, 0, 0, 0],  # 4 GFLOP
        [1, 1, 1, 0],  # 12 GFLOP
        [1, 1, 1, 0],  # 12 of 16 GB
        [0.5, 0, 0, 0],  # 2 of 16 GB
        [0, 0, 0, 0],  # nobody is left out
    ]
    np.testing.assert_allclose(image.pixels, expected)
    assert image.queue.tolist() == [1, 2]
    assert image.may.tolist() == [False, False, True, True, False, True, True]
    crowd = Starting(moments(workload((0.0, [(4.0, 1.0)] * 5, [])))[0])
    np.testing.assert_allclose(made.look(crowd, None).pixels[-1], [1, 0.5, 0, 0])  # 3 more, of the 8 that it can count


def test_the_queue_is_in_the_order_of_becoming_ready() -> None:
    """The order of level 1 would have the second workflow's root, the longer chain, first."""
    given = workload((0.0, [(4.0, 1.0)], []), (1.0, [(4.0, 1.0), (4.0, 1.0)], [[0, 1]]), (0.5, [(4.0, 12.0)], []))
    first = moments(given, answers=[[], []])[-1]
    assert first.ready["workflow"].tolist() == [2, 0, 1], "by hop"
    queue = network().look(Starting(first), None).queue
    assert queue.tolist() == [1, 2], "rows of ready: workflow 0, which waits since 0 s, and workflow 1, since 0.5 s"


def test_probabilities_add_up_and_what_cannot_start_has_none() -> None:
    for snapshot in moments(TWO_FLOWS, answers=[[Answer(0, 0, 2), Answer(1, 1, 0)]]):
        now = Starting(snapshot)
        p, none = probabilities(network(queue=3), now)
        np.testing.assert_array_equal(p > 0, now.can_start)
        assert p.sum() + none == pytest.approx(1.0)
        assert (none > 0) == bool(len(snapshot.running)), "where nothing runs, nothing would ever end"
    beyond, _ = probabilities(network(queue=1), Starting(moments(TWO_FLOWS)[0]))
    assert (beyond[1:] == 0).all(), "what is not shown cannot be chosen"


def test_what_is_drawn_is_drawn_by_the_probabilities_that_it_learns_from() -> None:
    made, now = network(queue=3), Starting(moments(TWO_FLOWS, answers=[[Answer(0, 0, 2)]])[-1])
    image, draws = made.look(now, None), np.random.default_rng(1).random((4000, 2))
    with torch.no_grad():
        steps = made.choose([now] * 4000, [image] * 4000, draws)
        logs, entropies = made.log_probabilities(steps)
    p, none = probabilities(made, now)
    counts = np.zeros((len(now.waits) + 1, 3))
    for step in steps:
        counts[step.task, step.server] += 1
    np.testing.assert_allclose(counts[:-1] / 4000, p, atol=0.03)
    assert counts[-1, -1] / 4000 == pytest.approx(none, abs=0.03)
    of_each = [none if step.task < 0 else p[step.task, step.server] for step in steps]
    np.testing.assert_allclose(logs.exp().numpy(), of_each, rtol=1e-4)
    flat = np.append(p[p > 0], [none] if none > 0 else [])
    assert entropies[0].item() == pytest.approx(-(flat * np.log(flat)).sum(), rel=1e-4)


def test_the_layer_is_as_wide_as_asked_and_the_image_as_long() -> None:
    made = network(hidden=7, time_steps=5, queue=3, step_s=0.5)
    assert made.hidden.weight.shape == (7, (2 * 3 + 2 * 3 + 1) * 5)
    assert made.actions.weight.shape == (3 * 3 + 1, 7)
    now = Starting(moments(TWO_FLOWS)[0])
    now.start(2, 2)  # 3 s
    np.testing.assert_allclose(made.look(now, None).pixels[2], [1, 1, 1, 1, 1])
