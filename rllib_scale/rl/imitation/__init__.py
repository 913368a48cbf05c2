"""Behaviour cloning: an expert's decisions, and the learner that a network is taught them by."""
