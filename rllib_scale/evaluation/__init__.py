"""Playing episodes: evaluation, replay, inspection."""
