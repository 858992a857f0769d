"""Sums of many columns that hardly vary, as shares that add up to 1: no coefficient of such columns is identified.

They make no entry of the curvature large (of 40 columns each has a correlation of -1/39 with every other), so that
shrinkage entry by entry takes them for noise. But they take nearly all of one eigenvalue, which all released matrices
together can show. Where noise is so large that they could not, every table looks as if it had one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.regression.newton.sums import NoisyMatrix
from tacit.types import Floats

MOST_NOISE = 0.33  # of the released curvature along one direction
_FEWEST = 10.0  # records that an intercept stands for


@dataclass(frozen=True, slots=True)
class Flat:
    """A direction along which the curvature is not known to be more than a few times its noise. Public.

    Args:
        direction: in parameters, of length 1 on the scale of correlations.
        value: the curvature along it, at least its noise; that of a column by itself is 1.
        noise: the standard deviation of each entry of the direction, on that scale.
    """

    direction: Floats
    value: float
    noise: float


def flat_in(released: Sequence[NoisyMatrix]) -> tuple[Flat, ...]:
    """The flat directions of several noisy matrices of the same covariates.

    The matrices are averaged as correlations given the intercept, weighted by their precision 1/s^2. An exact
    eigenvalue 1 - l below all others is seen at 1 - (l + s^2 d / l), from which l follows; v'Cv has noise sqrt(2) s.
    """
    parts = [_correlations(one) for one in released]
    weights = np.array([noise**-2 for _, noise, _ in parts])
    joined = np.einsum("k,kij->ij", weights / weights.sum(), np.array([matrix for matrix, _, _ in parts]))
    noise, scale, first = float(weights.sum() ** -0.5), parts[-1][2], released[-1].value[0]
    least, found = float(np.sqrt(2) * noise), []
    values, vectors = np.linalg.eigh(joined)
    for value, vector in zip(values, vectors.T, strict=True):
        seen, edge = 1 - value, 2 * noise * np.sqrt(len(joined))
        left = float(1 - (seen + np.sqrt(max(seen**2 - edge**2, 0.0))) / 2)
        if least > MOST_NOISE * left:
            rest = vector / scale
            centred = np.concatenate([[-first[1:] @ rest / max(float(first[0]), _FEWEST)], rest])
            found.append(Flat(centred, max(left, least), noise))
    return tuple(found)


def flat_variance(found: Sequence[Flat], effects: Floats, scale: Floats) -> Floats:
    """How much of the variance of each effect a'theta may lie in a flat direction, whose entries are noisy."""
    length = np.linalg.norm(effects / scale, axis=1)
    parts = [(np.abs(effects @ one.direction) + one.noise * length) ** 2 / one.value for one in found]
    return np.asarray(np.max([np.zeros(len(effects)), *parts], axis=0))


def _correlations(released: NoisyMatrix) -> tuple[Floats, float, Floats]:
    """Of the covariates given the intercept, their noise, and the roots of the diagonal."""
    first = released.value[0]
    given = (released.value - np.outer(first, first) / max(float(first[0]), _FEWEST))[1:, 1:]
    scale = np.sqrt(np.maximum(np.diag(given), 2 * released.on))
    both = np.outer(scale, scale)
    above = np.triu_indices(len(both), 1)
    matrix = given / both
    np.fill_diagonal(matrix, 1.0)
    return matrix, float(np.sqrt(np.mean((released.off / both[above]) ** 2))), scale
