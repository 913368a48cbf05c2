"""The scheduling problem as a Gymnasium environment; importing this package registers `rllib_scale/Scheduling-v0`.

    import gymnasium
    import rllib_scale.envs

    env = gymnasium.make("rllib_scale/Scheduling-v0", config="paper")
    envs = gymnasium.make_vec("rllib_scale/Scheduling-v0", num_envs=4, config="paper")

Without the second import, Gymnasium finds it under "rllib_scale.envs:rllib_scale/Scheduling-v0".
"""

import gymnasium

ENV_ID = "rllib_scale/Scheduling-v0"

# Entry points as text: the compiled simulator is loaded when the first environment is made.
gymnasium.register(
    id=ENV_ID,
    entry_point="rllib_scale.envs.scheduling:SchedulingEnv",
    vector_entry_point="rllib_scale.envs.vector:SchedulingVectorEnv",
)
