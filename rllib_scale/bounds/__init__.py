"""Lower bounds that no scheduler can beat."""
