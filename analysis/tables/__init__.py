"""Tables as data frames, and every number as text: terminal, CSV, Markdown, LaTeX, HTML."""
