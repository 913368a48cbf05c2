"""The networks as compiled functions: for inference, and for training on a CPU."""
