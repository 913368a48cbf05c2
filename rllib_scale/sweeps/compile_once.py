"""Once after an installation: trainings that start together compile what they need side by side, a part each."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from rllib_scale.compiled import SOURCES
from rllib_scale.config import TrialConfig
from rllib_scale.config.network import CrossAttentionConfig


def compile_once(trial: TrialConfig) -> None:
    """Have the machine code of a training's simulator and network, compiled here or by another process of this node.

    Takes milliseconds where it is cached. No random number is drawn from torch's generator.
    """
    folder = Path(tempfile.gettempdir()) / f"rllib-scale-compiling-{SOURCES[:16]}"
    take_turns({"simulator": partial(_play, trial), "network": partial(_pass, trial)}, folder)


def take_turns(parts: Mapping[str, Callable[[], object]], folder: Path) -> None:
    """Call each part once; what another process is at comes last, when it has finished with it.

    Args:
        parts: by name, which the processes agree in.
        folder: of this node, for the locks. They end with the process that holds them.
    """
    try:
        folder.mkdir(mode=0o777, parents=True, exist_ok=True)
        locks = {name: (folder / name).open("ab") for name in parts}
    except OSError:  # somebody else's, or no room: each for itself
        for part in parts.values():
            part()
        return
    try:
        busy = []
        for name, part in parts.items():
            try:
                fcntl.flock(locks[name], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                busy.append(name)
                continue
            part()
            fcntl.flock(locks[name], fcntl.LOCK_UN)
        for name in busy:
            with locks[name]:
                fcntl.flock(locks[name], fcntl.LOCK_EX)
                fcntl.flock(locks[name], fcntl.LOCK_UN)  # what is there is only read: all that wait may go on at once
            parts[name]()
    finally:
        for lock in locks.values():
            lock.close()


def _play(trial: TrialConfig) -> None:
    """A step of the simulator."""
    import numpy as np

    from rllib_scale.envs.vector import SchedulingVectorEnv

    envs = SchedulingVectorEnv(1, trial.env)
    envs.reset(seed=0)
    envs.step(np.zeros(1, dtype=np.int64))


def _pass(trial: TrialConfig) -> None:
    """A forward and a backward of the network, as a training makes them, and a forward as its sampling makes it."""
    import numpy as np
    import torch

    from rllib_scale.networks.build import build_network
    from rllib_scale.networks.compiled.fused import fuse
    from rllib_scale.networks.compiled.inference import compile_network
    from rllib_scale.rl.settings import ppo_of

    if not isinstance(trial.network, CrossAttentionConfig):
        return  # nothing that takes long
    with torch.random.fork_rng(devices=[]):
        network = build_network(trial)
    width = network.inputs.spec.task_dim + trial.env.cluster.num_slots * network.inputs.spec.server_dim
    observations = np.zeros((2, width), dtype=np.float32)
    if ppo_of(trial).sampler == "array":
        compile_network(network)(observations)
    fused = fuse(network)
    if fused is not None and ppo_of(trial).learner == "lean":
        features, logits = fused(torch.from_numpy(observations))
        (features.sum() + logits.sum()).backward()
