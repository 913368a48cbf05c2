"""Reads a results folder and turns it into statistics, tables, figures and a report.

    >>> import analysis, analysis.tables                                            # doctest: +SKIP
    >>> results = analysis.load("results/quickstart")                               # doctest: +SKIP
    >>> rows = analysis.select(results.episodes, "paper", "none", "argmax")         # doctest: +SKIP
    >>> analysis.tables.table3(rows)                                                # doctest: +SKIP

Every statistic, table and figure is a function of a frame that `load` returns.
"""

from analysis.load import Results, load, select, settings

__all__ = ["Results", "load", "select", "settings"]
