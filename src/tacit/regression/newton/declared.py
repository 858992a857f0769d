"""What a noisy curvature says about the exact one where it is declared that no sum of columns hardly varies.

Declared is rho, a lower bound on the least eigenvalue of the columns' correlations. The matrix is taken apart into

    H = | t  h'                          |
        | h  D^(1/2) C D^(1/2) + h h' / t |

the intercept's row h, the diagonal D given it, and correlations C. Row and diagonal are releases of their own, with R
times less noise than C has. Each is shrunk towards what earlier releases let expect (mixtures.py), C towards what the
moments said and common factors, with two consequences of the declaration:

- correlations at random of standard deviation tau lower the least eigenvalue of d columns by 2 tau sqrt(d), so that
  their mean square is at most ((1 - rho) / (2 sqrt(d)))^2
- no eigenvalue of C, and of no draw of C, is below rho

A declaration that the matrices contradict beyond their noise is dropped (:func:`is_contradicted`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tacit.regression.newton.curvature import common_factors
from tacit.regression.newton.flat import Flat, flat_variance
from tacit.regression.newton.mixtures import Mixture, shrunk
from tacit.regression.newton.sums import NoisyMatrix
from tacit.types import Floats

ENOUGH = 1 / 3  # declared: the curvature is then known within a factor of 3 in every direction
_LEAST = 0.1  # times the median one, that a column's curvature is taken to be
_LEAST_SCALE = 0.05  # times what was expected
_ROUNDS = 30
_HALVINGS = 12
_SAMPLES, _BEYOND = 64, 3.0  # noise drawn, and its standard deviations beyond which a declaration is contradicted


@dataclass(frozen=True, slots=True)
class DeclaredCurvature:
    """The posterior of an exact matrix under a declaration. Public.

    Args:
        least: rho.
        total, row, diagonal, correlations: the means of t, h, D and C.
        rows, diagonals, entries: what is known of h, D and C above its diagonal.
        sampling: the standard deviation of correlations of so many records whose columns are independent.
        seen, noise: the noisy correlations themselves, and the standard deviation of each.
        flat: directions that remain not identified, where rho is too small.
    """

    least: float
    total: float
    row: Floats
    diagonal: Floats
    correlations: Floats
    rows: Mixture
    diagonals: Mixture
    entries: Mixture
    sampling: float
    seen: Floats
    noise: Floats
    flat: tuple[Flat, ...] = ()

    @property
    def mean(self) -> Floats:
        return _assembled(self.total, self.row, self.diagonal, self.correlations)

    def changes(self, chance: np.random.Generator, count: int) -> Iterator[Floats]:
        """Draws of (exact matrix - mean), within the declaration."""
        above, mean = np.triu_indices(len(self.row), 1), self.mean
        for _ in range(count):
            row = self.row + self.rows.draw(chance)
            diagonal = np.maximum(self.diagonal + self.diagonals.draw(chance), self.diagonal / 3)
            change = np.zeros_like(self.correlations)
            change[above] = self.entries.draw(chance) + self.sampling * chance.standard_normal(len(above[0]))
            drawn = within(self.correlations, change + change.T, self.least)
            yield _assembled(self.total, row, diagonal, drawn) - mean

    def with_flat(self, found: tuple[Flat, ...]) -> "DeclaredCurvature":
        return replace(self, flat=found)

    def flat_variance(self, effects: Floats) -> Floats:
        scale = np.sqrt(np.concatenate([[self.total], self.diagonal]))
        return flat_variance(self.flat, effects, scale)

    def relative_noise(self, directions: Floats) -> Floats:
        """Of the diagonal alone: what the rest may take from v'Hv is declared."""
        along = directions[:, 1:] ** 2
        noise = np.sqrt((along**2 * self.diagonals.variance).sum(1))
        return np.asarray(noise / np.maximum((along * self.diagonal).sum(1), 1e-300))


def posterior_under(
    released: NoisyMatrix, expected: Floats, least: float, moments: DeclaredCurvature | None = None
) -> DeclaredCurvature:
    """What is known of the exact matrix.

    Args:
        expected: what other releases let expect of t, h and D, up to a factor.
        least: rho.
        moments: what the first matrix let expect of C, and the number of records; left out for that one itself.
    """
    value, size = released.value, len(released.value) - 1
    total = max(float(value[0, 0]), released.on)
    usual_row = expected[0, 1:] * total / expected[0, 0]
    rows = shrunk(value[0, 1:] - usual_row, released.above[:size])
    row = usual_row + rows.centre
    given = np.diag(expected)[1:] - expected[0, 1:] ** 2 / expected[0, 0]
    rest = value[1:, 1:] - np.outer(row, row) / total
    usual = given * max(float(np.trace(rest) / given.sum()), _LEAST_SCALE)
    diagonals = shrunk(np.diag(rest) - usual, np.hypot(released.on, 2 * np.abs(row) / total * np.sqrt(rows.variance)))
    diagonal = np.maximum(usual + diagonals.centre, _LEAST * float(np.median(usual)))
    scale, above = np.sqrt(np.outer(diagonal, diagonal)), np.triu_indices(size, 1)
    before = np.eye(size) if moments is None else moments.correlations
    sampling = max(total, 1.0) ** -0.5 if moments is None else moments.sampling
    apart, noise = rest / scale - before, released.off / scale
    common = common_factors(apart * scale, released.off) / scale  # on this scale all noise is of one size
    entries = shrunk((apart - common)[above], noise[above], (1 - least) / (2 * np.sqrt(size)))
    found = np.zeros_like(apart)
    found[above] = common[above] + entries.centre
    seen = rest / scale
    np.fill_diagonal(seen, 1.0)
    return DeclaredCurvature(
        least, total, row, diagonal, raised(before + found + found.T, least), rows, diagonals, entries,
        sampling, seen, noise,
    )  # fmt: skip


def first_under(gram: NoisyMatrix, least: float) -> DeclaredCurvature:
    """The same of the first release: all columns are expected to vary alike, and to have nothing in common."""
    first = gram.value[0]
    total = max(float(first[0]), gram.on)
    alike = max(float(np.mean(np.diag(gram.value)[1:] - first[1:] ** 2 / total)), gram.on)
    expected = np.outer(first, first) / total + np.diag([0.0, *np.full(len(first) - 1, alike)])
    return posterior_under(gram, expected, least)


def is_contradicted(known: Sequence[DeclaredCurvature], least: float) -> bool:
    """Whether the least eigenvalue of all matrices' correlations is smaller than noise makes it under the declaration.

    Worst under it are correlations with exactly ``least`` along the direction that is seen. Noise is drawn around them
    again and again; as it is known, and so are these, all of it is public.
    """
    weights = np.array([1 / np.mean(one.noise**2) for one in known])
    weights /= weights.sum()
    seen = np.einsum("k,kij->ij", weights, np.array([one.seen for one in known]))
    noise = np.sqrt(np.einsum("k,kij->ij", weights**2, np.array([one.noise**2 for one in known])))
    values, vectors = np.linalg.eigh(seen)
    lowest, worst = vectors[:, 0], known[-1].correlations
    worst = worst - max(float(lowest @ worst @ lowest) - least, 0.0) * np.outer(lowest, lowest)
    chance, above = np.random.default_rng(0), np.triu_indices(len(seen), 1)
    found = []
    for _ in range(_SAMPLES):
        drawn = np.zeros_like(seen)
        drawn[above] = (noise * chance.standard_normal(noise.shape))[above]
        found.append(float(np.linalg.eigvalsh(worst + drawn + drawn.T)[0]))
    return bool(values[0] < np.mean(found) - _BEYOND * np.std(found))


def within(mean: Floats, change: Floats, least: float) -> Floats:
    """The mean and as much of the change as leaves no eigenvalue below ``least``.

    Example:
        >>> within(np.eye(2), np.array([[0.0, 0.8], [0.8, 0.0]]), 0.5).round(2).tolist()
        [[1.0, 0.5], [0.5, 1.0]]
    """
    if np.linalg.eigvalsh(mean + change)[0] >= least:
        return mean + change
    kept, step = 0.0, 0.5
    for _ in range(_HALVINGS):
        if np.linalg.eigvalsh(mean + (kept + step) * change)[0] >= least:
            kept += step
        step /= 2
    return np.asarray(mean + kept * change)


def raised(correlations: Floats, least: float) -> Floats:
    """The nearest correlations with no eigenvalue below ``least``, round by round (projections in turn)."""
    found = correlations
    for _ in range(_ROUNDS):
        values, vectors = np.linalg.eigh(found)
        if values[0] >= least - 1e-9:
            break
        lifted = (vectors * np.maximum(values, least)) @ vectors.T
        root = np.sqrt(np.diag(lifted))
        found = lifted / np.outer(root, root)
    return found


def _assembled(total: float, row: Floats, diagonal: Floats, correlations: Floats) -> Floats:
    scale = np.sqrt(np.outer(diagonal, diagonal))
    block = correlations * scale + np.outer(row, row) / total
    return np.block([[np.full((1, 1), total), row[None]], [row[:, None], block]])
