"""Benchmarks: `python -m benchmarks` in a clone. They measure time; the tests check equality and complexity."""
