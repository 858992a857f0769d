"""A linear map, made of released statistics alone, that evens out the directions of the features.

Clipped noisy gradients move all directions alike; where features live in a few large ones, the small ones that decide
are lost in the noise. Everything here is post-processing of released numbers.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.errors import InputError, check_positive
from tacit.features.rows import unit_rows
from tacit.features.statistics import Statistics

_PART = 1024


@dataclass(frozen=True, slots=True)
class Whitening:
    """x -> scaled to norm 1 of W (x - mean), with W = (C + ridge * mean eigenvalue)^(-1/2) over the channels.

    Example:
        >>> even = Whitening(torch.zeros(2, 1), torch.eye(2))
        >>> even.apply_(torch.tensor([[3.0, 4.0]]))
        tensor([[0.6000, 0.8000]])
    """

    mean: Tensor
    matrix: Tensor

    @classmethod
    def of(cls, statistics: Statistics, *, ridge: float = 0.3) -> "Whitening":
        """From released statistics.

        Args:
            ridge: added to every eigenvalue, as a share of their mean, so that noise in small ones is not blown up.
        """
        check_positive("ridge", ridge)
        values, vectors = torch.linalg.eigh(statistics.covariance)
        values = values.clamp(min=0.0)  # noise can push small ones below 0
        floor = ridge * float(values.mean())
        if not floor > 0:
            raise InputError(
                "the released covariance has no positive eigenvalue: more records or less noise are needed"
            )
        return cls(statistics.mean, vectors @ torch.diag((values + floor).rsqrt()) @ vectors.T)

    def apply_(self, rows: Tensor) -> Tensor:
        """Whiten rows [n, channels, positions] or [n, channels] in place, each on its own, and give them norm 1."""
        shaped = rows[:, :, None] if rows.dim() == 2 else rows
        if shaped.shape[1:] != self.mean.shape:
            raise InputError(f"rows of shape {list(rows.shape[1:])} do not fit statistics of {list(self.mean.shape)}")
        matrix, mean = self.matrix.to(rows.dtype), self.mean.to(rows.dtype)
        for part in torch.split(shaped, _PART):
            part.copy_(matrix @ (part - mean))
        unit_rows(rows)
        return rows
