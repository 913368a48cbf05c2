"""Parts of work that several processes of a node need, each done by one of them first."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from rllib_scale.config import TrialConfig
from rllib_scale.sweeps.compile_once import compile_once, take_turns

WAIT_S = 60.0


def test_two_do_different_parts_first_and_each_part_alone(tmp_path: Path) -> None:
    """The first is held in its first part until the second has begun another one."""
    said: list[tuple[str, str]] = []
    other_begun, first_begun = threading.Event(), threading.Event()

    def one(name: str) -> None:
        said.append(("first", name))
        first_begun.set()
        assert other_begun.wait(WAIT_S), "the second waits for the first"

    def two(name: str) -> None:
        said.append(("second", name))
        other_begun.set()

    def turns(part: object) -> threading.Thread:
        parts = {name: (lambda name=name: part(name)) for name in "ab"}  # type: ignore[operator]
        thread = threading.Thread(target=take_turns, args=(parts, tmp_path / "locks"))
        thread.start()
        return thread

    threads = [turns(one)]
    assert first_begun.wait(WAIT_S)
    threads.append(turns(two))
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert said[:2] == [("first", "a"), ("second", "b")]
    assert sorted(said) == [(who, part) for who in ("first", "second") for part in "ab"]


def test_who_fails_holds_nobody_up(tmp_path: Path) -> None:
    def fail() -> None:
        raise OSError("no compiler")

    with pytest.raises(OSError, match="no compiler"):
        take_turns({"a": fail}, tmp_path / "locks")
    done: list[str] = []
    take_turns({"a": lambda: done.append("a")}, tmp_path / "locks")
    assert done == ["a"]


def test_without_a_place_for_locks_each_does_all(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done: list[str] = []
    take_turns({name: (lambda name=name: done.append(name)) for name in "ab"}, tmp_path / "file" / "locks")  # type: ignore[misc]
    assert done == ["a", "b"]


@pytest.mark.parametrize("method", ["scale", "ppo", "crossattn-r"])
def test_it_draws_nothing_from_the_generator_of_a_training(method: str) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    compile_once(TrialConfig(method=method))
    assert torch.equal(torch.rand(3), expected)
