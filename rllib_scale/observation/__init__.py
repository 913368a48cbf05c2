"""What is seen of a moment: the snapshot, and the named feature sets that agents are shown."""
