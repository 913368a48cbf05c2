"""Statistics of evaluation episodes: resampling, scores paired on identical episodes, summaries and differences."""
