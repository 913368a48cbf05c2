"""Trials, sweeps and evaluations on Ray, and the results they leave."""
