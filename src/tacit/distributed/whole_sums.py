"""Sums in whole numbers, for the same bits on any number of ranks: integers can be added in any order.

A sum over some records, in float64, is rounded to a multiple of 2^-40 of what one record may move it at most. One
record more changes one of these sums, and two roundings move it by at most one step in each of d coordinates: by
sqrt(d) 2^-40 of the clip norm, 3e-8 for a billion of them, which the slack of 1e-3 covers (docs/maths.md, section 11).
2^22 records of full length fit into 64 bits, and more are refused rather than wrapped around.
"""

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.mechanisms import GaussianSumMechanism
from tacit.types import Vectors

_STEP = 2.0**-40
_MOST = 2.0**62


def whole(value: Tensor, bound: float) -> Tensor:
    """A float64 sum of shares of at most ``bound`` in steps."""
    steps = value.double().div(bound * _STEP).round_()
    if value.numel() and not bool((steps.abs() < _MOST).all()):
        raise InputError("deterministic sums hold at most 4 million records of a step; draw fewer, or leave it out")
    return steps.to(torch.int64)


def whole_sums(mechanism: GaussianSumMechanism, sums: Vectors) -> Vectors:
    """All sums in steps; what is whole already (strict numerics) or exact (counts) stays as it is."""
    bounds = mechanism.bound_by_name() if mechanism.numerics != "strict" else {}
    return {name: whole(value, bounds[name]) if name in bounds else value for name, value in sums.items()}


def as_floats(mechanism: GaussianSumMechanism, sums: Vectors) -> Vectors:
    """Whole sums as the numbers that they stand for."""
    bounds = mechanism.bound_by_name() if mechanism.numerics != "strict" else {}
    return {
        name: value.double().mul_(bounds[name] * _STEP) if name in bounds else value for name, value in sums.items()
    }


def added(one: Vectors, other: Vectors) -> Vectors:
    """The sum of two, in the memory of the first."""
    return {name: one[name].add_(value) if name in one else value for name, value in other.items()}
