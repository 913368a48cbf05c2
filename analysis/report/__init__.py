"""The report: one page, and its summary on a terminal."""
