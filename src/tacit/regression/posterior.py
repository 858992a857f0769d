"""A posterior that knows the noise: draws of coefficients from the releases, by four normal errors and a prior.

With H the exact curvature and g the exact score at theta, s the sum of scores at the truth, of covariance J,

    truth = theta - H^-1 (g + s) = theta - H^-1 (released + privacy noise + s)

H is known up to its own noise. A draw takes H = mean + change and H^-1 to first order in the change, mean^-1 - mean^-1
change mean^-1: the change then moves the draws by what it does to the last step, and does not widen them by the inverse
of a matrix that may be nearly singular in some draws (docs/regression.md). What is left of it is measured and refused:
``doubt`` is the largest relative change of the curvature in any direction.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from tacit.regression.newton.curvature import KnownCurvature
from tacit.regression.newton.fit import Released
from tacit.regression.newton.flat import MOST_NOISE
from tacit.types import Floats

DRAWS = 1 << 14
CHANGES = 1 << 7  # of the curvature; a power of two, as the draws are, divides them evenly
MOST_DOUBT = 0.6  # of the curvature in its least certain direction: beyond it intervals are not stated


@dataclass(frozen=True, slots=True)
class Posterior:
    """Draws of the parameters and what their spread is made of. Public.

    Args:
        draws: [draws, parameters].
        sampling: the covariance that the data would leave without privacy.
        doubt: the median over draws of the largest relative change of the curvature.
        curvature, inverse: what is known of the curvature, and the inverse of its mean.
        unclear: directions, [parameters, k] with U'H U = I, along which the curvature is not known well enough.
        convergence: the length of the last step in standard deviations, by the root mean square over parameters.
    """

    draws: Floats
    sampling: Floats
    doubt: float
    curvature: KnownCurvature
    inverse: Floats
    unclear: Floats
    convergence: float

    def unclear_share(self, effects: Floats) -> Floats:
        """Which share of the variance of each effect a'theta, [effects, parameters], lies in unclear directions.

        All of it where the released curvature along H^-1 a is itself hardly more than noise, as for a level that
        nobody has.
        """
        whole = np.einsum("ij,jk,ik->i", effects, self.inverse, effects)
        unclear = np.maximum(((effects @ self.unclear) ** 2).sum(1), self.curvature.flat_variance(effects))
        share = unclear / np.maximum(whole, 1e-300)
        return np.where(self.curvature.relative_noise(effects @ self.inverse) > MOST_NOISE, 1.0, share)


def posterior_draws(released: Released, *, seed: int = 0) -> Posterior:
    """Draws under a flat prior. The chance in them is public: it only spreads out what was released."""
    chance = np.random.default_rng(seed)
    known, mean = released.curvature, released.curvature.mean
    values, vectors = np.linalg.eigh(mean)
    inverse, half = (vectors / values) @ vectors.T, vectors / np.sqrt(values)
    errors = _even_normals(seed, len(mean)) @ _root(released.scores + released.score_noise**2 * np.eye(len(mean)))
    draws, relative = [], []
    for change, some in zip(known.changes(chance, CHANGES), np.split(errors, CHANGES), strict=True):
        relative.append(half.T @ change @ half)
        step = (released.score + some) @ inverse
        draws.append(released.theta - step + step @ change @ inverse)
    found, changes = np.concatenate(draws), np.stack(relative)
    last = found.mean(0) - released.theta
    return Posterior(
        found,
        inverse @ released.scores @ inverse,
        _doubt(changes),
        known,
        inverse,
        half @ _unclear(changes),
        float(np.sqrt(np.mean((last / found.std(0)) ** 2))),
    )


def _doubt(changes: Floats) -> float:
    """The median over draws of the largest relative change in any direction."""
    return float(np.median(np.abs(np.linalg.eigvalsh(changes)).max(-1))) if changes.shape[-1] else 0.0


def _unclear(changes: Floats) -> Floats:
    """The fewest orthonormal directions without which the doubt is small enough; all where a quarter is too few."""
    size = changes.shape[-1]
    order = np.linalg.eigh(np.einsum("sij,skj->ik", changes, changes))[1][:, ::-1]
    for left_out in range(max(1, size // 4) + 1):
        kept = order[:, left_out:]
        if _doubt(kept.T @ changes[::4] @ kept) <= MOST_DOUBT:
            return np.asarray(order[:, :left_out])
    return np.asarray(order)


def _even_normals(seed: int, size: int) -> Floats:
    """Standard normal draws from Sobol's sequence: the quantiles of so few are then right to half a percent."""
    from scipy.stats.qmc import Sobol  # half a second, which no other command should wait for

    points = Sobol(size, seed=seed).random(DRAWS)
    return np.asarray(ndtri(np.clip(points, 1e-9, 1 - 1e-9)))


def _root(matrix: Floats) -> Floats:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T)
