"""Servers that are replicas of a language model: continuous batching, caches, sessions, rules of the field."""
