"""Networks and the regulariser: nothing of RLlib, gymnasium or the simulator."""
