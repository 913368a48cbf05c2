"""What no scheduler can beat."""
