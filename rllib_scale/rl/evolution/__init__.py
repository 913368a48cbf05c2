"""Evolution strategies as an algorithm of RLlib."""
