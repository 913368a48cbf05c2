"""Fixtures of the analysis tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from artificial_results import artificial_episodes, artificial_training, as_in_the_paper, write_folder


@pytest.fixture(scope="session")
def results_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """scale, crossattn (5 seeds, N = 16 to 128), ppo (5 seeds, N = 16), six heuristics; six episodes each."""
    return write_folder(
        tmp_path_factory.mktemp("results"),
        as_in_the_paper(artificial_episodes()),
        as_in_the_paper(artificial_training()),
    )
