"""Formats of files with workloads, one module each."""
