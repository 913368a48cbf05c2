"""DQN and SAC: modules, learners, replay buffer."""
