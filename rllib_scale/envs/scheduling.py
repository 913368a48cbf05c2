"""One cluster under one agent: the Gymnasium environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from rllib_scale.config import EnvConfig
from rllib_scale.envs.spaces import (
    MAX_SEED,
    RENDER_MODES,
    CandidatesForm,
    FlatForm,
    check_index,
    check_render_mode,
    read_options,
    resolve_config,
)
from rllib_scale.errors import UserError
from rllib_scale.simulator.engine import make_engine

Observation = NDArray[np.float32]


class SchedulingEnv(FlatForm, gymnasium.Env[Any, np.int64]):
    """Scheduling of agentic workflows on a cluster, `rllib_scale/Scheduling-v0`.

    ## Description
    Online scheduling of agentic workflows on a heterogeneous cluster [SCALE, sec. 3 and 4.1]. Workflows, directed
    acyclic graphs of tasks, arrive over time. Of the ready tasks a fixed rule takes the one with the longest way to the
    end of its workflow (the current task); the agent chooses the server that runs it, one task at a time, to its end.

    ## Action Space
    `Discrete(N)`: the server for the current task. The choice is valid where there is a server in this row, with a free
    place and the memory. A valid choice starts the task and leaves the clock; the next decision may follow at the same
    time. Any other choice starts nothing and costs `episode.clock_step_s` of time.

    ## Observation Space
    `Box(5 + 5N,)` float32, raw features: those of the current task, then those of each server. Empty rows are 0.

    | Num | Observation | Min | Max | Unit |
    |---|---|---|---|---|
    | 0 | compute demand over `task_compute_max_gflop` | 0 | no limit | 1 |
    | 1 | memory over `memory_max_gb` | 0 | memory of the largest server / `memory_max_gb` | 1 |
    | 2 | direct successors over 5 | 0 | no limit | 1 |
    | 3 | completed over all tasks of the workflow | 0 | 1 | 1 |
    | 4 | output data | 0 | no limit | GB |
    | 5 + 5j | capacity of server j over `server_compute_max_gflops` | 0 | that of the fastest server | 1 |
    | 6 + 5j | memory of server j over `memory_max_gb` | 0 | that of the largest server | 1 |
    | 7 + 5j | time until a place on server j is free, 0 when one is | 0 | no limit | s |
    | 8 + 5j | power that server j draws now | 0 | highest busy power of a server | W |
    | 9 + 5j | communication delay to server j from the server of the first predecessor | 0 | no limit | s |

    In the space "no limit" is the largest float32. When an episode has come to its end no task is current: its
    features and the delays are 0. When it was cut, the next task is shown, if one waits.

    ## Rewards
    `reward.name: paper`: `time_weight * exp(-execution time / time_scale_s)` less the weighted communication delay and
    energy for a valid choice, `invalid_reward` for any other. `tasks-in-system`: minus the integral of the number of
    arrived and unfinished tasks over the time from this decision to the next one.

    ## Starting State
    An empty cluster at time 0; the first decision is at the first arrival. The workload depends on (seed, episode)
    alone, never on what is decided: `reset(seed=s)` starts episode 0 of seed s, each `reset()` after it the next one.
    Where no seed was ever given, one is drawn from the operating system.

    `reset(options={"episode": k})` starts episode k. `reset(options={"workload": w})` plays a given workload: a
    `Workload`, its JSON content or the path of a JSON file; the reset after it goes on with drawn ones.

    ## Episode End
    Termination: every workflow that can arrive is complete; or the clock is at `episode.horizon_s`, where
    `episode.horizon_is_terminal` says that this is a terminal state.
    Truncation: the clock is at the horizon, where it is not; or `episode.max_decisions` were made.

    `info["action_mask"]` (N,) int8: 1 for servers with a free place and the memory; where there is none (which a mask
    of the config rules out), 1 for every server, since each costs the same time. `info["elapsed_s"]`: time since the
    last decision. The last step's `info["metrics"]` holds the metrics of the episode (names and units:
    `rllib_scale.results.columns.METRIC_COLUMNS`).

    ## Arguments
    - `config`: name of a scenario (`"paper"`), a mapping of `rllib_scale.config.EnvConfig`'s keys, or an `EnvConfig`;
      `None` is `"paper"`.
    - `render_mode`: `"rgb_array"` renders a Gantt chart of the episode so far.

    ```python
    gymnasium.make("rllib_scale/Scheduling-v0", config={"cluster": "paper-32"}, render_mode="rgb_array")
    ```

    ## Version History
    - v0: first version.
    """

    metadata: dict[str, Any] = {"render_modes": RENDER_MODES, "render_fps": 4}  # noqa: RUF012

    def __init__(
        self, config: str | Mapping[str, Any] | EnvConfig | None = None, render_mode: str | None = None
    ) -> None:
        check_render_mode(render_mode)
        self.config = resolve_config(config)
        self.render_mode = render_mode
        self.observation_space, actions = self._spaces()
        self.action_space, self._num_actions = actions, int(actions.n)
        self._engine = make_engine(self.config)
        self._seed: int | None = None
        self._episode = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode; see "Starting State".

        Raises:
            UserError: impossible seed or option, or a workload that is invalid or does not fit the cluster.
        """
        workload, episode = read_options(options, self.config)
        next_seed, next_episode = self._seed, self._episode + 1
        if seed is not None:
            next_seed, next_episode = check_index("seed", seed), 0
        elif next_seed is None:
            next_seed, next_episode = int(self.np_random.integers(MAX_SEED)), 0
        if episode is not None:
            next_episode = check_index("episode", episode)
        super().reset(seed=None if seed is None else next_seed)
        self._engine.reset([next_seed], [next_episode], workload=workload)
        self._seed, self._episode = next_seed, next_episode
        return self._observe(), self._info()

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Choose the server of the current task. After the end nothing happens any more, at reward 0.

        Raises:
            UserError: the action is outside the action space.
        """
        if self._seed is None:
            raise ResetNeeded("call reset() before step()")
        if not self.action_space.contains(action):
            raise UserError(f"action {action!r} is no server; valid: 0 to {self._num_actions - 1}")
        engine = self._engine
        engine.step(self._answers(np.array([action], dtype=np.int64)))
        done, cut = bool(engine.done[0]), bool(engine.truncated[0])
        info = self._info() | ({"metrics": engine.metrics()} if done else {})
        return self._observe(), float(engine.reward[0]), done and not cut, done and cut, info

    def _observe(self) -> Any:
        shown = self._shown()
        return {name: rows[0] for name, rows in shown.items()} if isinstance(shown, dict) else shown[0]

    def _info(self) -> dict[str, Any]:
        mask = self._engine.mask[0][: self._num_actions]
        return {"action_mask": mask.astype(np.int8), "elapsed_s": float(self._engine.elapsed[0])}

    def action_masks(self) -> NDArray[np.bool_]:
        """(A,) bool, as `info["action_mask"]`: what MaskablePPO of sb3-contrib asks an environment for."""
        return self._engine.mask[0][: self._num_actions].astype(bool)

    def render(self) -> NDArray[np.uint8] | None:  # type: ignore[override]
        """Gantt chart of the episode so far, (H, W, 3) uint8; None without a render mode."""
        if self.render_mode is None:
            return None
        # Matplotlib takes long to import, and training never draws.
        from rllib_scale.envs.gantt import draw_gantt, to_rgb

        return to_rgb(draw_gantt(self.schedule(), self.config.cluster, float(self._engine.clock[0])))

    def schedule(self) -> np.ndarray:
        """Every task started so far: workflow, task, server, tier, arrival_s, ready_s, start_s, finish_s."""
        return self._engine.schedule()

    def get_state(self) -> dict[str, Any]:
        """Everything that `set_state` needs to go on exactly from here."""
        return {"engine": self._engine.get_state(), "seed": self._seed, "episode": self._episode}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go on where `get_state` was called, on an environment of the same config."""
        self._engine.set_state(state["engine"])
        self._seed, self._episode = state["seed"], state["episode"]


class CandidatesEnv(CandidatesForm, SchedulingEnv):
    """Scheduling in rounds, `rllib_scale/SchedulingCandidates-v0`.

    ## Description
    The problem of `Scheduling-v0` with every kind of decision that a config may ask for (`decision`; docs/simulator.md
    has the rules): up to K tasks are offered at once (`order: open`), a task may wait for a busy server
    (`on_busy: reserve`), or be passed over. Answers within a round take no time: `info["elapsed_s"]` says how much
    passed, by which a learner discounts.

    ## Action Space
    `Discrete(K N + 1)` with N servers; K = 1 unless the order is open.

    | Num | Action |
    |---|---|
    | k N + j | candidate k on server j |
    | K N | pass: none of the candidates now |

    A candidate that is not there, as fewer wait, counts as a pass.

    ## Observation Space
    `Dict`: `context` (C,), `tasks` (K, F) and `servers` (N, G) float32, the features of `observation.feature_set`
    (rllib_scale/observation/feature_sets.py says what they are), and `action_mask` (A,) int8, 1 for answers that do
    something. Candidates and servers that are not there are 0.

    ## Rewards, Starting State, Episode End, Arguments
    As `Scheduling-v0`. Waiting and passing earn nothing. `info["action_mask"]` is that of the
    observation.

    ## Version History
    - v0: first version.
    """
