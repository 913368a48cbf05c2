"""Reads a results folder and turns it into statistics, tables, figures and a report.

    >>> import analysis, analysis.tables                                            # doctest: +SKIP
    >>> results = analysis.load("results/quickstart")                               # doctest: +SKIP
    >>> rows = analysis.select(results.episodes, "paper", "none", "argmax")         # doctest: +SKIP
    >>> analysis.tables.table3(rows)                                                # doctest: +SKIP

`load` returns typed frames, whose columns `analysis.columns` documents. Every statistic, table and figure is a function
of such a frame:

    tables          table3, table4, scenarios_table
    comparisons     paired_table
    features        table5, drift_against_servers
    behaviour       behaviour_table, invalid_decisions, utilisation_by_tier
    lambdas         lambda_table, lambda_heatmaps
    paper_figures   figure3, figure4, figure5, figure6
    figures         method_bars, against_servers, throughput_against_response
    curves          training_curves
    replays         chosen_episodes, which `rllib_scale.evaluation.replay.Replay` draws as Gantt charts
    report          write_report: all of them, as a page and as files
    terminal        print_report: the words and the main tables
"""

from .load import Results, columns, load, select, settings

__all__ = ["Results", "columns", "load", "select", "settings"]
