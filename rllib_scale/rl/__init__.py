"""The only room that knows RLlib: modules, learner, environments as RLlib makes them, and the methods."""
