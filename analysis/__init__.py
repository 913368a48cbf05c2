"""Reads a results folder and turns it into statistics, tables, figures, a report and a live page.

    >>> import rllib_scale_analysis as analysis                                     # doctest: +SKIP
    >>> from rllib_scale_analysis.tables import methods                             # doctest: +SKIP
    >>> results = analysis.load("results/quickstart")                               # doctest: +SKIP
    >>> rows = analysis.select(results.episodes, "paper", "none", "argmax")         # doctest: +SKIP
    >>> methods.table3(rows)                                                        # doctest: +SKIP

`load` returns typed frames, whose columns `columns` documents::

    labels      what every column is called, in tables, on axes and in sentences
    stats/      scores paired on identical episodes, intervals and tests, families of verdicts
    tables/     data frames: table3, table4, paired_table, table5, behaviour_table, lambda_table, against_base; as text
    figures/    charts as functions of these tables, drawn by matplotlib in files and on the page, by plotly when live
    report/     write_report: one page, CSV, SVG; print_report: the summary and the main tables on a terminal
    dashboard/  the live page
"""

from .load import Results, columns, load, select, settings

__all__ = ["Results", "columns", "load", "select", "settings"]
