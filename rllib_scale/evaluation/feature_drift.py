"""The attention feature f of a policy at its own decisions: how it is distributed at a scale, and how far it has moved
from the training scale [SCALE, Table 5].

Statistics are those of `rllib_scale.networks.srr.feature_statistics`, in float64. Drift compares with a reference
sample: the same problem at the training scale, on the episodes that follow the evaluation's. It thus compares two
different samples at the training scale too, where it is what sampling alone makes of it. Drift from training compares
with the very problem of the training, under the same mask: other scenarios count, not other scales alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from scipy.spatial.distance import cdist, pdist
from scipy.stats import wasserstein_distance

from rllib_scale.config import EnvConfig
from rllib_scale.evaluation.play import evaluate, play
from rllib_scale.networks.build import Network
from rllib_scale.networks.srr import feature_statistics
from rllib_scale.observation.feature_sets import first_candidate
from rllib_scale.policies.policy import TrainedPolicy
from rllib_scale.simulator.engine import Engine

MAX_ROWS = 2048
"""Decisions of a sample at most: the squared MMD compares all pairs."""
MAX_BYTES = 2**28
"""Limit of a sample of observations; fewer decisions are kept at more than 26 000 servers."""
SERVERS_PER_FORWARD = 2**18
"""Server rows that pass the network at once."""


class DecisionSample:
    """Observations at every s-th decision of each episode; s = `stride` is the smallest power of 2 that keeps to
    MAX_ROWS and MAX_BYTES. Given to `play` as its `watch`.
    """

    def __init__(self) -> None:
        self.stride = 1
        self._step = 0
        self._kept: list[np.ndarray] = []

    def __call__(self, engine: Engine) -> None:
        """Note the observations of the episodes that have not ended."""
        if self._step % self.stride == 0:
            observation, _ = first_candidate(engine.observation, engine.fit, engine.config.observation)
            most = min(MAX_ROWS, MAX_BYTES // observation[0].nbytes)
            self._kept.append(observation[~engine.done][:most])
            while sum(map(len, self._kept)) > most:
                self._kept = self._kept[::2]
                self.stride *= 2
        self._step += 1

    @torch.no_grad()
    def features(self, network: Network) -> np.ndarray:
        """Features f (decisions, d), float64, by decision number, then by episode."""
        if not self._kept:
            return np.empty((0, network.feature_dim))
        observations = torch.from_numpy(np.concatenate(self._kept))
        servers = network.inputs.spec.num_servers(observations.shape[1])
        parts = observations.split(max(1, SERVERS_PER_FORWARD // servers))
        return np.concatenate([network(part)[0].double().numpy() for part in parts])


def evaluate_with_features(
    policy: TrainedPolicy, env: EnvConfig, seed: int, episodes: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The results of `evaluate`, and the feature and drift columns of results.columns.

    A policy that is fixed to its number of servers has no drift.
    """
    sample = DecisionSample()
    rows = evaluate(policy, env, seed, episodes, watch=sample)
    features = sample.features(policy.network)
    columns: dict[str, Any] = {"feature_rows": len(features), "feature_dim": features.shape[1]}
    columns |= statistics(features)
    if policy.trial.any_scale:
        trained_on = policy.trial.env
        at_scale = env.at_scale(trained_on.cluster.num_servers)
        of_training = trained_on.with_mask(env.episode.mask).model_copy(update={"reward": env.reward})  # seen by none
        following = list(range(episodes, 2 * episodes))

        def moved_from(problem: EnvConfig) -> dict[str, float]:
            reference = DecisionSample()
            play(policy, problem, seed, following, watch=reference)
            return drift(features, reference.features(policy.network))

        columns |= moved_from(at_scale)
        moved = columns if of_training == at_scale else moved_from(of_training)
        columns["drift_training_wasserstein"] = moved["drift_wasserstein_relative"]
        columns["drift_training_mmd2"] = moved["drift_mmd2"]
    return rows, columns


def statistics(features: np.ndarray) -> dict[str, float]:
    """Distribution of the features (B, d); NaN for fewer than two rows."""
    if len(features) < 2:
        names = ("covariance", "correlation", "effective_rank", "kl", "variance")
        return {f"feature_{name}": math.nan for name in names}
    values = feature_statistics(torch.from_numpy(features))
    return {f"feature_{name}": float(value) for name, value in values._asdict().items()}


def drift(features: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    """Distances of the features (B, d) from a reference sample (R, d) of the training scale; NaN without two rows each.

    `drift_wasserstein` is in the unit of f, which a regulariser may shrink; the other two do not depend on it:
    `drift_wasserstein_relative` is in standard deviations of the reference (root of its mean variance).
    """
    if min(len(features), len(reference)) < 2:
        return dict.fromkeys(("drift_wasserstein", "drift_wasserstein_relative", "drift_mmd2"), math.nan)
    distance = wasserstein(features, reference)
    deviation = math.sqrt(reference.var(axis=0, ddof=1).mean())
    return {
        "drift_wasserstein": distance,
        "drift_wasserstein_relative": distance / deviation if deviation > 0 else math.nan,
        "drift_mmd2": squared_mmd(features, reference),
    }


def wasserstein(features: np.ndarray, reference: np.ndarray) -> float:
    """Mean over dimensions of the 1-D Wasserstein distance between samples (B, d) and (R, d)."""
    return float(np.mean([wasserstein_distance(x, y) for x, y in zip(features.T, reference.T, strict=True)]))


def squared_mmd(features: np.ndarray, reference: np.ndarray) -> float:
    """Unbiased estimate of the squared maximum mean discrepancy of (B, d) and (R, d) [Gretton et al. 2012, eq. 3].

    Kernel exp(-|x - y|^2 / (2 h^2)), h the median distance between two rows of the reference. Between samples of
    one distribution the estimate scatters about 0. NaN where half the rows of the reference are equal.
    """
    apart = pdist(reference, "sqeuclidean")
    scale = 2 * np.median(np.sqrt(apart)) ** 2
    if scale == 0:
        return math.nan

    def mean_kernel(squared_distances: np.ndarray) -> float:
        return float(np.exp(-squared_distances / scale).mean())

    within = mean_kernel(pdist(features, "sqeuclidean")) + mean_kernel(apart)
    return within - 2 * mean_kernel(cdist(features, reference, "sqeuclidean"))
