"""One compute thread per process, before anything starts its own."""

import os

from rllib_scale.clusters.session import ONE_THREAD

os.environ.update(ONE_THREAD)
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
