"""Benchmarks, run by `rllib-scale bench` from a clone. They hold time; the tests hold equality and complexity."""
