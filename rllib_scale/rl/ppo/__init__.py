"""PPO with the representation regulariser: module, loss, learner."""
