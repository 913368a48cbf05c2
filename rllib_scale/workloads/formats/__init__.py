"""Files that hold workloads, one module a format."""
