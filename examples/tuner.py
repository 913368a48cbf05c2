"""Learning rates of SCALE by Ray Tune's plain Tuner, with the configuration of a sweep.

    python examples/tuner.py

Tune decides what is tried and what is stopped; the trial decides problem, network and regulariser.
"""

import ray
from ray import tune

from rllib_scale.config import TrialConfig
from rllib_scale.rl.methods import build_algorithm_config

EPOCHS = 3


def main() -> None:
    """Train three learning rates for EPOCHS iterations each, and name the best."""
    ray.init(num_cpus=2)
    trial = TrialConfig.of("scale", algorithm={"epochs": EPOCHS, "num_envs": 4})
    config = build_algorithm_config(trial).training(lr=tune.grid_search([1e-4, 3e-4, 1e-3]))
    tuner = tune.Tuner(
        config.algo_class,
        param_space=config,
        tune_config=tune.TuneConfig(metric="env_runners/episode_return_mean", mode="max"),
        run_config=tune.RunConfig(stop={"training_iteration": EPOCHS}, verbose=0),
    )
    best = tuner.fit().get_best_result()
    print(f"lr = {best.config['lr']:g}: mean return {best.metrics['env_runners']['episode_return_mean']:.3f}")


if __name__ == "__main__":
    main()
