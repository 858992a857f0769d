"""The mean and the second moment of private rows, released once with Gaussian noise and charged to the run's ledger.

Sensitivity: a row x = [channels, positions] is clipped to norm 1. It adds x to the sum of rows, of norm at most 1, and
sum_p x_p x_p^T to the second moment, whose Frobenius norm is at most its trace, |x|^2 <= 1. Both sums are groups of one
Gaussian sum query on the full batch (McMahan et al. 2018, section 2), divided by the declared number of records. The
moment is taken around 0, as the mean is not known when a row is clipped; the released mean is subtracted afterwards,
for nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike

import torch
from torch import Tensor

from tacit.accountants.budget import Budget, charge_within
from tacit.errors import InputError, check_positive
from tacit.ledger import Charge, LedgerFile, LedgerHeader, PoissonSample
from tacit.mechanisms import ClipGroups, GaussianSumMechanism, VectorGroup, build_mechanism
from tacit.randomness import Randomness

MEAN, SECOND_MOMENT = "mean", "second_moment"
_PART = 512


@dataclass(frozen=True, slots=True)
class Statistics:
    """What was released: both are public.

    Args:
        mean: [channels, positions].
        second_moment: [channels, channels], symmetric, summed over positions and around 0.
    """

    mean: Tensor
    second_moment: Tensor

    @property
    def covariance(self) -> Tensor:
        """The second moment around the mean; noise may have made it indefinite."""
        return self.second_moment - self.mean @ self.mean.T


@dataclass(frozen=True, slots=True)
class StatisticsPlan:
    """How much noise hides a row in each of the two sums, in units of what a row can do.

    Example:
        >>> round(StatisticsPlan(mean_noise=30.0, moment_noise=12.0).event(channels=2, positions=3).noise_multiplier, 3)
        11.142
    """

    mean_noise: float
    moment_noise: float

    def __post_init__(self) -> None:
        check_positive("mean_noise", self.mean_noise)
        check_positive("moment_noise", self.moment_noise)

    def event(self, channels: int, positions: int) -> PoissonSample:
        """What the ledger is charged: one release on the full batch."""
        return PoissonSample(1.0, self.mechanism(channels, positions).queries)

    def mechanism(self, channels: int, positions: int) -> GaussianSumMechanism:
        shapes = {MEAN: torch.Size([channels, positions]), SECOND_MOMENT: torch.Size([channels, channels])}
        slack = 1e-5  # sums are formed in float64, of the very numbers whose norms are measured
        noises = (self.mean_noise * (1 + slack), self.moment_noise * (1 + slack))
        groups = [VectorGroup((name,), 1.0, noise) for name, noise in zip(shapes, noises, strict=True)]
        return build_mechanism(ClipGroups(groups), None, shapes, slack=slack)


def private_statistics(
    rows: Tensor,
    plan: StatisticsPlan,
    *,
    ledger: str | PathLike[str],
    header: LedgerHeader,
    randomness: Randomness | None = None,
) -> Statistics:
    """Release the mean and second moment of rows; the ledger is charged before they are read.

    Args:
        rows: [n, channels, positions] or [n, channels], private; rows longer than 1 are clipped, rows that are not
            finite count as 0.
        ledger, header: those of the run that will use the statistics: ``plan.header(randomness)``. The size that the
            header declares divides the sums, and its budget is checked.
        randomness: secure by default.
    """
    rows = rows[:, :, None] if rows.dim() == 2 else rows
    if rows.dim() != 3:
        raise InputError(f"rows must be [n, channels, positions], found {list(rows.shape)}")
    if header.dataset_size is None:
        raise InputError("the sums are divided by a declared number of records: the header needs a dataset_size")
    randomness = randomness or Randomness()
    mechanism = plan.mechanism(rows.shape[1], rows.shape[2])
    _charge(ledger, header, [Charge(PoissonSample(1.0, mechanism.queries), 1)])
    released = mechanism.release(clipped_sums(rows, mechanism), header.dataset_size, randomness)
    moment = released[SECOND_MOMENT]
    return Statistics(released[MEAN], (moment + moment.T) / 2)


def clipped_sums(rows: Tensor, mechanism: GaussianSumMechanism) -> dict[str, Tensor]:
    """Private until noise is added: the sums over rows [n, channels, positions] of norm at most 1, in float64."""
    sums = mechanism.zeros(rows.device)
    for part in torch.split(rows, _PART):
        x = part.double()
        squares = x.square().sum((1, 2))
        factors = mechanism.factors(squares[:, None].expand(-1, 2))[:, 0, None, None]
        x = torch.where(factors > 0, x, 0.0) * factors  # NaN times 0 would stay NaN
        sums[MEAN] += x.sum(0)
        wide = x.transpose(0, 1).flatten(1)
        sums[SECOND_MOMENT] += wide @ wide.T
    return sums


def _charge(ledger: str | PathLike[str], header: LedgerHeader, charges: Sequence[Charge]) -> None:
    with LedgerFile(ledger, header) as file:
        charge_within(Budget.of(file.ledger), file, charges, planned=1)
