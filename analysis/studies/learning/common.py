"""How much of RLlib's gradient is common to problems: with a baseline over copies, and with the critic.

python analysis/studies/learning/common.py adaptive 48    # start of the network, number of problems

A problem's gradient is that of PPO's loss on all decisions of one group at the policy that played it. With P problems
the squared norm of what is common is (|sum g|^2 - sum |g|^2) / (P (P - 1)), without bias; the rest of the mean of |g|^2
is noise. The noise of a batch falls with its problems: it equals the signal at noise / signal of them. The critic, on
the feature of the network as in every training, is fitted to the targets of these very decisions, which favours it.
"""

import sys
from typing import Any

import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.evaluation.postprocessing import Postprocessing

from rllib_scale.config import TrialConfig
from rllib_scale.rl.env_runner import ELAPSED, GROUP_ADVANTAGE
from rllib_scale.rl.methods import build_algorithm_config
from rllib_scale.rl.ppo.group import group_advantages
from rllib_scale.rl.ppo.lean_update import Batch, train_batch
from rllib_scale.rl.ppo.loss import Outputs, Rows, Weights, ppo_loss

FITS, ALL, THINNED = 300, 2**20, 1024
"""Steps of Adam that fit the critic, decisions that are more than any group has, and the default of `scale-any`."""
HORIZONS_S = (5.0, 15.0, 50.0)
start, problems = sys.argv[1], int(sys.argv[2])
trial = TrialConfig.model_validate(
    {
        "method": "scale-any",
        "training": {"problems": {"family": {"agents_share": 0.0}}},
        "network": {"skip": start},
        "ppo": {"groups": 1, "steps_per_epoch": ALL, "minibatch_size": ALL, "validation_instances": 0},
        "env": {"episode": {"mask": "feasible"}},
    }
)
algorithm: Any = build_algorithm_config(trial).build_algo()
module = algorithm.learner_group._learner.module["default_policy"].unwrapped()
PLAIN = Weights(0.2, 0.0, 0.0, 0.0, 0.0, "mean", standardise=False, regularise=False)


def seen(episodes: list[Any], horizon_s: float, values: Any, lambda_: float) -> tuple[Batch, torch.Tensor]:
    """The rows of one group, advantages by generalised advantage estimation in units of its mean reward."""
    gamma = float(np.exp(-1.0 / horizon_s))
    batch = train_batch(episodes, values, gamma, lambda_, 1.0, lambda_by_time=True)
    return batch, batch[Postprocessing.ADVANTAGES]


def gradient(batch: Batch, advantages: torch.Tensor) -> np.ndarray:
    """(K,) of PPO's policy loss at the policy that played."""
    columns = batch[Columns.ACTIONS], batch[Columns.ACTION_LOGP], advantages.float(), advantages.float()
    module.zero_grad()
    features, logits = module.outputs(batch[Columns.OBS])
    loss, _ = ppo_loss(Rows(*columns), Outputs(features, logits, torch.zeros(len(logits))), PLAIN)
    loss.backward()
    return np.concatenate([p.grad.numpy().ravel() for p in module.network.parameters() if p.grad is not None])


def say(name: str, gradients: np.ndarray) -> None:
    """Print signal, noise, and what they mean."""
    each, total = float((gradients**2).sum(1).mean()), float((gradients.sum(0) ** 2).sum())
    common = (total - problems * each) / (problems * (problems - 1))
    share = common / (common + (each - common) / problems)
    equal = (each - common) / common if common > 0 else np.inf
    print(
        f"{name:26} signal equals noise at {equal:5.0f} problems; of {problems} problems {share:.0%} is common",
        flush=True,
    )


groups, units, copies = [], [], []
for _ in range(problems):
    episodes = algorithm.env_runner.sample()
    of_each = [np.asarray(episode.get_rewards(), dtype=np.float64) for episode in episodes]
    elapsed = [np.asarray(episode.get_extra_model_outputs(ELAPSED), dtype=np.float64) for episode in episodes]
    units.append(abs(sum(each.sum() for each in of_each)) / sum(map(len, of_each)))
    copies.append([np.concatenate(group_advantages(of_each, elapsed, h)) / units[-1] for h in HORIZONS_S])
    for episode in episodes:  # else they would take the place of the critic's
        del episode.extra_model_outputs[GROUP_ADVANTAGE]
    groups.append(episodes)
for k, horizon_s in enumerate(HORIZONS_S):
    # The critic learns the discounted returns, which are the advantages over a critic that says 0.
    plain = [seen(episodes, horizon_s, lambda rows: torch.zeros(len(rows[Columns.OBS])), 1.0) for episodes in groups]
    with torch.no_grad():
        features = torch.cat([module.outputs(batch[Columns.OBS])[0] for batch, _ in plain])
    targets = torch.cat([returns / unit for (_, returns), unit in zip(plain, units, strict=True)]).float()
    optimizer = torch.optim.Adam(module.critic.parameters(), lr=3e-3)
    for _ in range(FITS):
        rows = torch.randint(len(targets), (4096,))
        loss = (module.critic(features[rows]) - targets[rows]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        explained = 1 - (module.critic(features) - targets).var() / targets.var()
    found = [gradient(batch, torch.from_numpy(own[k])) for (batch, _), own in zip(plain, copies, strict=True)]
    say(f"{horizon_s:g} s, copies", np.stack(found))
    if horizon_s == HORIZONS_S[1]:
        found = []
        for (batch, _returns), own in zip(plain, copies, strict=True):
            few = torch.from_numpy(np.random.default_rng(1).permutation(len(own[k]))[:THINNED])
            fewer = {name: column[few] for name, column in batch.items()}
            found.append(gradient(fewer, torch.from_numpy(own[k])[few]))
        say(f"{horizon_s:g} s, {THINNED} decisions", np.stack(found))
    found = []
    for episodes, unit in zip(groups, units, strict=True):
        batch, advantages = seen(episodes, horizon_s, lambda rows, u=unit: module.compute_values(rows) * u, 0.95)
        found.append(gradient(batch, advantages / unit))
    say(f"{horizon_s:g} s, critic (explains {explained:.0%})", np.stack(found))
algorithm.stop()
