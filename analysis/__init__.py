"""Reads a results folder and turns it into statistics, tables, figures and a report.

    >>> from analysis import load, tables                              # doctest: +SKIP
    >>> results = load("results/quickstart")                           # doctest: +SKIP
    >>> paper = load.select(results.episodes, "paper", "none", "argmax")  # doctest: +SKIP

Every statistic, table and figure is a function of a frame that `load` returns.
"""

from analysis.load import Results, load

__all__ = ["Results", "load"]
