"""The methods that are known by name: their order in tables, and their colour and marker in figures."""

from __future__ import annotations

METHODS = {
    # Okabe and Ito's palette for the paper's methods; the others differ from it under three kinds of colour blindness.
    "scale": ("#0072B2", "o"),
    "crossattn": ("#D55E00", "s"),
    "ppo": ("#009E73", "^"),
    "ppo-srr": ("#CC79A7", "D"),
    "dqn": ("#56B4E9", "v"),
    "sac": ("#E69F00", "P"),
    "deepsets-srr": ("#BBCC33", ">"),
    "deepsets": ("#225522", "<"),
    "set-transformer-srr": ("#FFAABB", "h"),
    "set-transformer": ("#6F4070", "p"),
    "attention-model-srr": ("#88CCEE", "d"),
    "attention-model": ("#EE8866", "*"),
    "scale-any": ("#0B4F6C", "o"),
    "adaptive-price": ("#4B0082", "P"),
    "context-price": ("#B8860B", "8"),
    "release": ("#CC503E", "D"),
    "scale-release": ("#1D6996", "o"),
    "decima": ("#2E8B57", "P"),
    "deeprm": ("#8B3A62", "X"),
    # Rules: Tol's muted, vibrant and high-contrast palettes.
    "heft": ("#DDCC77", "d"),
    "cpop": ("#661100", "8"),
    "dual-price": ("#CC3311", "p"),
    "price": ("#EE3377", "o"),
    "hungarian": ("#997700", "d"),
    "reserve": ("#117733", "s"),
    "non-blocking": ("#994455", ">"),
    "fastest-idle": ("#000000", "X"),
    "earliest-finish": ("#882255", "<"),
    "earliest-finish-transfer": ("#EE7733", "<"),
    "sticky": ("#009988", "D"),
    "prefix-affinity": ("#AA3377", "P"),
    "least-loaded": ("#6699CC", "^"),
    "power-of-two": ("#5D7A1E", "v"),
    "best-fit-memory": ("#999933", ">"),
    "large-only": ("#332288", "p"),
    "round-robin": ("#44AA99", "h"),
    "random-feasible": ("#888888", "*"),
}
"""Learned methods, then rules; others follow by name."""
