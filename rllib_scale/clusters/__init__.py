"""Ray clusters: sessions, cluster files, jobs, placement."""
