"""Trained policies as files and as schedulers."""
