"""Distributed RLlib experiment suite for SCALE (arXiv:2606.06820): learned scheduling of agentic workflows."""

__version__ = "0.4.0"
