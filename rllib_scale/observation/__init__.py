"""Policies' view of a state: views, snapshots and the named feature sets."""
