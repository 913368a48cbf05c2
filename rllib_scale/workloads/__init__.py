"""Workloads as arrays, their generators, and the formats they are imported from."""
