"""The numbers of the paper, and the variants that they belong to."""

from __future__ import annotations

import pandas as pd

from .rows import PAPER_SETTING, settings

PAPER_EPOCHS = 1000
PAPER_SERVERS = 16
PAPERS = ("scale", "crossattn", "sac", "ppo", "ppo-srr", "dqn")
"""Methods of the paper."""
PAPER_COMPLETED = {  # [SCALE, Table 3], N = 16: mean and standard deviation over 30 episodes
    ("scale", 16): (8.37, 2.15),
    ("crossattn", 16): (8.10, 1.85),
    ("sac", 16): (5.93, 1.41),
    ("ppo", 16): (4.03, 0.71),
    ("ppo-srr", 16): (4.30, 1.10),
    ("dqn", 16): (4.00, 0.68),
}
PAPER_RESPONSE = {  # [SCALE, Tables 3 and 4], seconds: mean and standard deviation over 30 episodes
    ("scale", 16): (4.58, 0.68),
    ("crossattn", 16): (4.65, 0.67),
    ("sac", 16): (4.50, 0.29),
    ("ppo", 16): (4.37, 0.73),
    ("ppo-srr", 16): (4.45, 0.73),
    ("dqn", 16): (4.88, 0.49),
    ("scale", 32): (5.57, 0.65),
    ("crossattn", 32): (5.70, 0.52),
    ("scale", 48): (6.22, 0.70),
    ("crossattn", 48): (6.83, 0.63),
}
PAPER_FEATURES = {  # [SCALE, Table 5]: mean |off-diagonal covariance| of f, KL from N(0, I)
    ("scale", 16): (0.037, 0.516),
    ("scale", 32): (0.036, 0.637),
    ("scale", 48): (0.044, 0.623),
    ("crossattn", 16): (0.274, 0.378),
    ("crossattn", 32): (0.103, 0.498),
    ("crossattn", 48): (0.090, 0.484),
}


def is_papers_setting(episodes: pd.DataFrame) -> bool:
    """Whether the frame holds the paper's scenario, mask and decision rule alone."""
    return settings(episodes) == [PAPER_SETTING]


def papers_methods(rows: pd.DataFrame) -> dict[str, str]:
    """Variant -> method, for the variants that the paper states numbers for: trained as in the paper.

    The number of epochs may be another one.
    """
    trained = rows[rows["of_paper"].fillna(False).astype(bool)].drop_duplicates("variant")
    return dict(trained[["variant", "method"]].astype(str).itertuples(index=False, name=None))
