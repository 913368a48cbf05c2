"""The report: one page, Markdown, and its words on a terminal."""
