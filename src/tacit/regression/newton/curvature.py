"""What a noisy symmetric matrix says about the exact one: shrinkage that the noise, which is known, decides on.

Entries off the diagonal are many and most of them small, so plain noise would swamp the small eigenvalues. On the scale
of correlations, with the noise s_ij of each entry known, the exact matrix is described by

    D = low rank + E,    E_ij ~ sum_k pi_k N(0, tau_k^2)

- low rank: eigenvectors beyond the edge 2 s sqrt(d) of the noise's spectrum, their values freed
  of what noise adds (deformed Wigner matrices: seen = l + s^2 d / l), so that common factors survive
- the rest: a mixture of normals around 0, found from all entries (mixtures.py)

The posterior of each entry is then a mixture of normals, from which :meth:`Curvature.changes` draws.
What shrinkage cannot see, a sum of many columns that hardly varies, is looked for apart (flat.py), or declared not to
be there (declared.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from tacit.regression.newton.flat import Flat, flat_in, flat_variance
from tacit.regression.newton.mixtures import Mixture, shrunk
from tacit.regression.newton.sums import NoisyMatrix
from tacit.types import Floats

_BEYOND = 1.1  # times the edge of the noise before a direction counts as a common factor
_FLOOR = 0.02  # the least eigenvalue, as a share of the median one


class KnownCurvature(Protocol):
    """What is known of an exact matrix, as draws of coefficients need it. Public."""

    @property
    def mean(self) -> Floats:
        """Positive definite."""

    def changes(self, chance: np.random.Generator, count: int) -> Iterator[Floats]:
        """Draws of (exact matrix - mean)."""

    def flat_variance(self, effects: Floats) -> Floats:
        """How much of the variance of each effect a'theta may lie in a direction that is not identified."""

    def relative_noise(self, directions: Floats) -> Floats:
        """The noise of v'Hv over its value, for each row v."""


@dataclass(frozen=True, slots=True)
class Curvature:
    """The posterior of an exact matrix. Public.

    Args:
        mean: positive definite.
        scale: square roots of its diagonal as released.
        entries: what each entry above the diagonal may be, on the scale of correlations; its centre is in ``mean``.
        released: the noisy matrix itself.
        flat: directions that are not known to have any curvature; ``mean`` has little there.
    """

    mean: Floats
    scale: Floats
    entries: Mixture
    released: NoisyMatrix
    flat: tuple[Flat, ...] = ()

    def flattened(self, released: Sequence[NoisyMatrix]) -> "Curvature":
        """With no more curvature along flat directions than all these matrices show."""
        mean, found = self.mean, flat_in(released)
        for one in found:
            steep = mean @ one.direction
            now = float(one.direction @ steep)
            mean = mean - max(0.0, 1 - one.value / now) * np.outer(steep, steep) / now  # a'Ha becomes one.value
        return replace(self, mean=mean, flat=found)

    def flat_variance(self, effects: Floats) -> Floats:
        """How much of the variance of each effect a'theta may lie in a flat direction, whose entries are noisy."""
        return flat_variance(self.flat, effects, self.scale)

    def relative_noise(self, directions: Floats) -> Floats:
        """The noise of v'Hv over its released value, for each row v: no shrinkage can make up for a large one."""
        seen = np.einsum("ki,ij,kj->k", directions, self.released.value, directions)
        fourth, square = (directions**4).sum(1), (directions**2).sum(1)
        noise = np.sqrt(self.released.on**2 * fourth + 2 * self.released.off**2 * (square**2 - fourth))
        return np.asarray(noise / np.maximum(seen, 1e-9 * noise))

    def changes(self, chance: np.random.Generator, count: int) -> Iterator[Floats]:
        """Draws of (exact matrix - mean)."""
        size, above = len(self.mean), np.triu_indices(len(self.mean), 1)
        for _ in range(count):
            change = np.zeros((size, size))
            change[above] = self.entries.draw(chance)
            yield (change + change.T) * np.outer(self.scale, self.scale) + np.diag(
                self.released.on * chance.standard_normal(size)
            )


def posterior_of(released: NoisyMatrix, expected: Floats) -> Curvature:
    """What is known of the exact matrix, given a noisy release and what other releases let expect."""
    scale = np.sqrt(np.maximum(np.diag(released.value), 2 * released.on))
    above = np.triu_indices(len(scale), 1)
    both = np.outer(scale, scale)
    noise = released.above / both[above]
    apart = (released.value - expected) / both
    common = common_factors(apart, float(np.sqrt((noise**2).mean())) if len(noise) else 0.0)
    entries = shrunk((apart - common)[above], noise)
    found = np.zeros_like(apart)
    found[above] = common[above] + entries.centre
    mean = (found + found.T) * both + expected
    np.fill_diagonal(mean, np.maximum(np.diag(released.value), released.on))
    variances = np.zeros_like(apart)
    variances[above] = entries.variance
    spreads = (variances + variances.T) * both**2 + np.diag(np.full(len(scale), released.on**2))
    return Curvature(_above_noise(mean, spreads), scale, entries, released)


def _above_noise(matrix: Floats, variances: Floats) -> Floats:
    """The matrix with no eigenvalue below the standard deviation of v'Hv: where there is no data, doubt must show."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    squares = vectors**2
    twice = 2 * variances - np.diag(np.diag(variances))  # an entry off the diagonal counts twice in v'Hv
    least = np.sqrt(np.einsum("ik,ij,jk->k", squares, twice, squares))
    return np.asarray((vectors * np.maximum(values, np.maximum(least, 1e-9 * values.max()))) @ vectors.T)


def positive(matrix: Floats, floor: float = _FLOOR) -> Floats:
    """The matrix with no eigenvalue below a share of the median one."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    least = floor * max(float(np.median(values)), float(values.max()) * 1e-6, 1e-12)
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)


def common_factors(apart: Floats, noise: float) -> Floats:
    """The low-rank part; its own diagonal is filled in round by round, as in principal factor analysis."""
    filled, edge = apart.copy(), 2 * noise * np.sqrt(len(apart))
    np.fill_diagonal(filled, 0.0)
    found = np.zeros_like(filled)
    for _ in range(15):
        values, vectors = np.linalg.eigh(filled)
        beyond = np.abs(values) > _BEYOND * edge
        if not beyond.any() or edge == 0:
            return found
        freed = np.sign(values) * (np.abs(values) + np.sqrt(np.maximum(values**2 - edge**2, 0))) / 2
        found = (vectors * np.where(beyond, freed, 0.0)) @ vectors.T
        np.fill_diagonal(filled, np.diag(found))
    return np.asarray(found)
