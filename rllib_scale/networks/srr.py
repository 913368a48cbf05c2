"""Statistical representation regularisation: terms that draw a feature batch towards N(0, I) [SCALE, sec. 4.3]."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

MIN_VARIANCE = 1e-8
"""Variances are raised to this before a logarithm or a division: a dead unit gives a finite, constant term."""


class SRRTerms(NamedTuple):
    """The two unweighted regularisation terms, scalars."""

    decorrelation: Tensor  # L_c
    kl: Tensor  # L_d


class FeatureStatistics(NamedTuple):
    """Statistics of the features of a batch, scalars (Table 5 of the paper, and what it leaves out)."""

    covariance: Tensor  # mean |off-diagonal covariance|
    correlation: Tensor  # mean |off-diagonal correlation|; 0 with a feature that does not vary
    effective_rank: Tensor  # exp of the entropy of the normalised eigenvalues of the covariance, 1 to d
    kl: Tensor  # L_d
    variance: Tensor  # mean variance of the features


def srr(features: Tensor, reduction: Literal["sum", "mean"] = "sum") -> SRRTerms:
    """L_c = sum_{i != j} |C_ij| and L_d = 1/(2d) sum_k (mu_k^2 + var_k - ln var_k - 1) of the features (B, d).

    Args:
        features: (B, d) with B >= 2.
        reduction: L_c summed over its d (d - 1) entries, or their mean.
    """
    mean, covariance = _moments(features)
    magnitude = _off_diagonal(covariance)
    if reduction == "mean":
        magnitude = magnitude / _pairs(features)
    return SRRTerms(magnitude, _kl(mean, covariance.diagonal()))


def ramp(epoch: int, start: float, length: float) -> float:
    """Share of the regularisation in force at an epoch, 0 being the first: clip((epoch - start) / length, 0, 1)."""
    return min(max((epoch - start) / length, 0.0), 1.0)


@torch.no_grad()
def feature_statistics(features: Tensor) -> FeatureStatistics:
    """Statistics of the features (B, d), B >= 2."""
    mean, covariance = _moments(features)
    variance = covariance.diagonal()
    deviation = variance.clamp_min(MIN_VARIANCE).sqrt()
    # In float32 the many zero eigenvalues of a wide feature with dead units can keep LAPACK from converging.
    eigenvalues = torch.linalg.eigvalsh(covariance.double()).clamp_min(0)
    shares = eigenvalues / eigenvalues.sum().clamp_min(MIN_VARIANCE)
    return FeatureStatistics(
        covariance=_off_diagonal(covariance) / _pairs(features),
        correlation=_off_diagonal(covariance / deviation / deviation[:, None]) / _pairs(features),
        effective_rank=torch.special.entr(shares).sum().exp(),
        kl=_kl(mean, variance),
        variance=variance.mean(),
    )


def _moments(features: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (d,) and unbiased covariance (d, d)."""
    mean = features.mean(0)
    centered = features - mean
    return mean, centered.T @ centered / (len(features) - 1)


def _off_diagonal(matrix: Tensor) -> Tensor:
    """Sum of the magnitudes off the diagonal of a symmetric matrix."""
    return 2 * matrix.triu(1).abs().sum()


def _pairs(features: Tensor) -> int:
    d = features.shape[1]
    return max(d * (d - 1), 1)


def _kl(mean: Tensor, variance: Tensor) -> Tensor:
    return (mean.square() + variance - variance.clamp_min(MIN_VARIANCE).log() - 1).mean() / 2
