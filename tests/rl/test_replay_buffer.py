"""The replay buffer: what it keeps, what it draws, and that it goes on exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from scipy.stats import chisquare

from rllib_scale.rl.off_policy.replay_buffer import ReplayBuffer


def piece(first: int, length: int, terminated: bool = False) -> SingleAgentEpisode:
    """Observation t is (t, -t), its action 10 t, its reward t / 2."""
    t = np.arange(first, first + length + 1)
    return SingleAgentEpisode(
        observations=list(np.stack((t, -t), 1).astype(np.float32)),
        actions=list(10 * t[:-1]),
        rewards=list(t[:-1] / 2),
        infos=[{}] * (length + 1),
        terminated=terminated,
        len_lookback_buffer=0,
    )


def buffer(capacity: int = 64, seed: int = 0) -> ReplayBuffer:
    return ReplayBuffer(capacity, 2, np.random.default_rng(seed))


def drawn(replay: ReplayBuffer, count: int = 2000) -> dict[str, np.ndarray]:
    rows = replay.sample(count)
    t = rows["obs"][:, 0]
    np.testing.assert_array_equal(rows["obs"], np.stack((t, -t), 1))
    np.testing.assert_array_equal(rows["new_obs"], np.stack((t + 1, -t - 1), 1))
    np.testing.assert_array_equal(rows["actions"], 10 * t)
    np.testing.assert_array_equal(rows["rewards"], t / 2)
    return rows


def test_every_transition_is_drawn_as_often_and_no_last_observation_is() -> None:
    replay = buffer()
    replay.add([piece(0, 5, terminated=True), piece(100, 3), piece(200, 1, terminated=True)])
    assert len(replay) == 9
    rows = drawn(replay, 9000)
    values, counts = np.unique(rows["obs"][:, 0], return_counts=True)
    assert values.tolist() == [0, 1, 2, 3, 4, 100, 101, 102, 200]
    assert chisquare(counts).pvalue > 0.01
    assert set(rows["obs"][rows["terminateds"], 0]) == {4, 200}
    assert set(rows["weights"]) == set(rows["n_step"]) == {1}


def test_a_full_ring_holds_the_newest_transitions() -> None:
    replay = buffer(capacity=20)
    for i in range(50):
        replay.add([piece(100 * i, 1 + i % 7, terminated=i % 2 == 0)])
        rows = drawn(replay, 500)
        newest, numbers = [], list(range(i + 1))
        while numbers and len(newest) + (k := numbers.pop()) * 0 < 20:
            newest += [None, *(100 * k + t for t in reversed(range(1 + k % 7)))]  # an end, then its steps backwards
        assert set(rows["obs"][:, 0]) == {t for t in newest[:20] if t is not None}
        assert len(replay) == len(set(rows["obs"][:, 0]))


def test_a_restored_buffer_goes_on_exactly() -> None:
    def go_on(replay: ReplayBuffer) -> list[Any]:
        seen = []
        for i in range(4):
            replay.add([piece(1000 * i, 6)])
            seen.append(replay.sample(20)["actions"].tolist())
        return seen

    for pieces in (2, 9):  # half empty, and gone round
        replay = buffer(capacity=40)
        replay.add([piece(50 * i, 7) for i in range(pieces)])
        replay.sample(5)
        state = replay.get_state()
        assert len(state["rows"]["observation"]) == min(8 * pieces, 40), "unused rows are not saved"
        expected = go_on(replay)
        restored = buffer(capacity=40, seed=9)
        restored.add([piece(7, 30)])
        restored.set_state(state)
        assert go_on(restored) == expected
