"""Statistics, tables, figures, a report and a live page of a results folder.

    >>> import rllib_scale_analysis as analysis                                     # doctest: +SKIP
    >>> from rllib_scale_analysis.tables import methods                             # doctest: +SKIP
    >>> results = analysis.load("results/quickstart")                               # doctest: +SKIP
    >>> rows = analysis.select(results.episodes, "paper", "none", "argmax")         # doctest: +SKIP
    >>> methods.table3(rows)                                                        # doctest: +SKIP

`load` returns typed frames; `rllib_scale.results.columns` documents their columns::

    labels      names of columns in tables, on axes and in sentences
    shown       the variants that pages show if there are too many
    stats/      scores that are paired on identical episodes, intervals and tests, families of verdicts
    tables/     data frames, most of them a summary_table: table3, table4, table5, paired_table, against_base; as text
    figures/    charts as functions of these tables; matplotlib draws them in files, plotly on the dashboard
    report/     write_report: one page, CSV, SVG; print_report: the summary and the main tables on a terminal
    dashboard/  the live page
"""

from .load import Results, load
from .rows import select, settings

__all__ = ["Results", "load", "select", "settings"]
