"""Evaluation episodes: intervals and tests, scores paired on identical episodes, summaries and differences."""
