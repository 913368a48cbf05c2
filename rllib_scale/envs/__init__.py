"""The scheduling problem as Gymnasium environments; importing this package registers them::

    import gymnasium
    import rllib_scale.envs

    env = gymnasium.make("rllib_scale/Scheduling-v0", config="paper")
    envs = gymnasium.make_vec("rllib_scale/Scheduling-v0", num_envs=4, config="paper")

`Scheduling-v0` is the paper's: one task at a time, a flat observation. `SchedulingCandidates-v0` has all that a round
of decisions may hold: several tasks at once, waiting, passing, stopping a task; its observation is a dictionary.

With `service: replica`, `Scheduling-v0` sends the calls of agents to replicas of a language model, or holds them.

Without the second import, Gymnasium finds it under "rllib_scale.envs:rllib_scale/Scheduling-v0".
"""

import gymnasium

ENV_ID = "rllib_scale/Scheduling-v0"
CANDIDATES_ENV_ID = "rllib_scale/SchedulingCandidates-v0"

# Entry points as text: the compiled simulator is loaded when the first environment is made.
gymnasium.register(
    id=ENV_ID,
    entry_point="rllib_scale.envs.scheduling:SchedulingEnv",
    vector_entry_point="rllib_scale.envs.vector:SchedulingVectorEnv",
)
gymnasium.register(
    id=CANDIDATES_ENV_ID,
    entry_point="rllib_scale.envs.scheduling:CandidatesEnv",
    vector_entry_point="rllib_scale.envs.vector:CandidatesVectorEnv",
)
