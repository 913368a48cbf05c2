"""The regulariser against arithmetic done by hand."""

from __future__ import annotations

import math

import pytest
import torch

from rllib_scale.networks.srr import feature_statistics, ramp, srr

torch.set_num_threads(1)  # tests run side by side

# Means 3 and 2; centred rows (-2, 0), (0, -2), (2, 2); divided by 3 - 1:
# variances (4 + 0 + 4) / 2 = 4 and (0 + 4 + 4) / 2 = 4, covariance (0 + 0 + 4) / 2 = 2.
THREE_BY_TWO = torch.tensor([[1.0, 2.0], [3.0, 0.0], [5.0, 4.0]], dtype=torch.float64)

# Means 2, 1, 2; centred rows (-1, -1, 0), (1, -1, 2), (-1, 1, 2), (1, 1, -4); divided by 4 - 1:
# variances 4/3, 4/3, (0 + 4 + 4 + 16) / 3 = 8;
# covariances C12 = (1 - 1 - 1 + 1) / 3 = 0, C13 = (0 + 2 - 2 - 4) / 3 = -4/3, C23 = (0 - 2 + 2 - 4) / 3 = -4/3.
FOUR_BY_THREE = torch.tensor([[1.0, 0.0, 2.0], [3.0, 0.0, 4.0], [1.0, 2.0, 4.0], [3.0, 2.0, -2.0]], dtype=torch.float64)

# Mean 0, and each column's squares sum to 4 * 3/4 = 3 = 4 - 1; the columns are orthogonal: covariance I.
WHITE = math.sqrt(3 / 4) * torch.tensor(
    [[1.0, 1.0, 1.0], [1.0, -1.0, -1.0], [-1.0, 1.0, -1.0], [-1.0, -1.0, 1.0]], dtype=torch.float64
)


def test_three_by_two() -> None:
    decorrelation, kl = srr(THREE_BY_TWO)
    assert decorrelation.item() == pytest.approx(2 + 2)
    # 1 / (2 * 2) * ((3^2 + 4 - ln 4 - 1) + (2^2 + 4 - ln 4 - 1)) = (12 + 7 - 2 ln 4) / 4
    assert kl.item() == pytest.approx((19 - 2 * math.log(4)) / 4)
    statistics = feature_statistics(THREE_BY_TWO)
    assert statistics.covariance.item() == pytest.approx(2)
    assert statistics.correlation.item() == pytest.approx(2 / 4)
    # Eigenvalues of [[4, 2], [2, 4]]: 6 and 2.
    assert statistics.effective_rank.item() == pytest.approx(math.exp(-0.75 * math.log(0.75) - 0.25 * math.log(0.25)))
    assert statistics.kl.item() == pytest.approx(kl.item())
    assert statistics.variance.item() == pytest.approx(4)


def test_four_by_three() -> None:
    decorrelation, kl = srr(FOUR_BY_THREE)
    assert decorrelation.item() == pytest.approx(2 * (0 + 4 / 3 + 4 / 3))
    # 1 / (2 * 3) * ((4 + 4/3 - ln 4/3 - 1) + (1 + 4/3 - ln 4/3 - 1) + (4 + 8 - ln 8 - 1))
    assert kl.item() == pytest.approx((13 / 3 + 4 / 3 + 11 - 2 * math.log(4 / 3) - math.log(8)) / 6)
    mean = srr(FOUR_BY_THREE, reduction="mean")
    assert mean.decorrelation.item() == pytest.approx((16 / 3) / 6)
    assert mean.kl.item() == kl.item()


def test_zero_at_decorrelated_standard_normal_features() -> None:
    decorrelation, kl = srr(WHITE)
    assert decorrelation.item() == pytest.approx(0, abs=1e-12)
    assert kl.item() == pytest.approx(0, abs=1e-12)
    assert feature_statistics(WHITE).effective_rank.item() == pytest.approx(3)


def test_gradient() -> None:
    features = torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    assert torch.autograd.gradcheck(srr, (features,))


def test_a_dead_feature_stays_finite() -> None:
    features = torch.randn(8, 3).index_fill(1, torch.tensor([1]), 0.0).requires_grad_()
    terms = srr(features)
    (terms.decorrelation + terms.kl).backward()
    assert torch.isfinite(torch.stack(terms)).all()
    assert torch.isfinite(features.grad).all()
    assert all(math.isfinite(value) for value in feature_statistics(features))


@pytest.mark.parametrize(("epoch", "share"), [(0, 0), (10, 0), (35, 0.5), (60, 1), (100, 1)])
def test_ramp(epoch: int, share: float) -> None:
    assert ramp(epoch, start=10, length=50) == share
