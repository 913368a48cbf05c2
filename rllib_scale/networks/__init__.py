"""Networks and the regulariser: torch only, nothing of RLlib, gymnasium or the simulator."""
