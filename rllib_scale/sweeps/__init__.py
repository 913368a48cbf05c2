"""Sweeps on Ray Tune."""
