"""Strict numerics: contributions on an integer grid, summed exactly, with discrete Gaussian noise.

Sensitivity, in exact arithmetic: a coordinate is rounded *toward zero* to a multiple of the step, which never lengthens
a vector, and the squared length of the whole numbers is then checked against (S / step)^2 as a whole number. A record
that were longer, by a rounding error of its clip factor, contributes zero. So no slack is needed: |n| step <= S holds
for the very integers that are added up.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import torch
from torch import Tensor

from tacit.errors import InputError

Numerics = Literal["float64", "strict"]

_BITS = 31  # S / step < 2^31, so that squared lengths and sums of 2^31 records fit in 64 bits
_EXTREME = 900  # binary exponents beyond which the step would leave float64


@dataclass(frozen=True, slots=True)
class Grid:
    """Multiples of ``step``, a power of two; ``longest`` is the squared length in steps that a record may have.

    Example:
        >>> Grid.of(1.0)
        Grid(step=9.313225746154785e-10, longest=1152921504606846976)
    """

    step: float
    longest: int

    @classmethod
    def of(cls, clip_norm: float) -> "Grid":
        """The grid of a clip norm S: public, because S is. 2^30 <= S / step < 2^31."""
        exponent = math.frexp(clip_norm)[1]
        if abs(exponent) > _EXTREME:
            raise InputError(f"strict numerics need a clip norm between 1e-270 and 1e270, found {clip_norm:g}")
        step = math.ldexp(1.0, exponent - _BITS)
        return cls(step, math.floor((Fraction(clip_norm) / Fraction(step)) ** 2))

    def sigma(self, stddev: float) -> int:
        """The noise in steps, rounded up."""
        return math.ceil(Fraction(stddev) / Fraction(self.step))

    def rounded_up(self, stddev: float) -> float:
        """The noise that is really added; below 2^53 steps it is a float without rounding."""
        return float(Fraction(self.sigma(stddev)) * Fraction(self.step))

    def whole(self, vectors: Sequence[Tensor], scales: Sequence[float]) -> list[Tensor]:
        """One record's clipped vectors of a group in steps; nothing at all if they are too long together."""
        parts = [
            vector.double().div(scale * self.step).trunc().to(torch.int64)
            for vector, scale in zip(vectors, scales, strict=True)
        ]
        # The clip holds to about 1e-6, so that this sum cannot leave 64 bits before it is found too long.
        if sum(int(part.square().sum()) for part in parts) > self.longest:
            return [torch.zeros_like(part) for part in parts]
        return parts
