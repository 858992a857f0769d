"""Adaptive shrinkage (Stephens 2017): many noisy entries around 0, of which most are small, and what each may be.

    entry_i ~ N(exact_i, noise_i^2),    exact_i ~ sum_k pi_k N(0, tau_k^2)

The weights pi are found by EM from all entries, so that single large ones are kept and noise around 0 goes.
"""

from dataclasses import dataclass

import numpy as np

from tacit.types import Floats

_ROUNDS = 200


@dataclass(frozen=True, slots=True)
class Mixture:
    """The posterior of exact entries: for each the normals that it may come from. Public.

    Args:
        centre: the mean of each entry.
        weights, shifts, stddevs: of its normals, [entries, normals], as differences from the mean.
    """

    centre: Floats
    weights: Floats
    shifts: Floats
    stddevs: Floats

    @property
    def variance(self) -> Floats:
        return np.asarray((self.weights * (self.shifts**2 + self.stddevs**2)).sum(1))

    def draw(self, chance: np.random.Generator) -> Floats:
        """One draw of (exact entries - centre)."""
        entries, steps = np.arange(len(self.weights)), self.weights.cumsum(1)
        which = (chance.random((len(entries), 1)) > steps).sum(1).clip(max=steps.shape[1] - 1)
        spread = self.stddevs[entries, which] * chance.standard_normal(len(entries))
        return np.asarray(self.shifts[entries, which] + spread)


def shrunk(entries: Floats, noise: Floats, most: float | None = None) -> Mixture:
    """What is known of entries with noise of known size; ``most`` bounds the root mean square of exact ones.

    Example:
        >>> found = shrunk(np.array([0.1, -0.2, 0.1, 5.0]), np.full(4, 0.2))
        >>> bool(found.centre[3] > 4.5), bool(abs(found.centre[0]) < 0.1)
        (True, True)
    """
    if not len(entries):
        empty = np.zeros((0, 1))
        return Mixture(np.zeros(0), empty, empty, empty)
    least = float(noise.min()) / 8
    longest = 1.5 * float(np.sqrt(max(0.0, (entries**2 - noise**2).max())))
    number = max(3, int(np.ceil(np.log(max(longest / least, 2)) / np.log(1.6))))
    widths = np.concatenate([[0.0], np.geomspace(least, max(longest, 2 * least), number)])
    variance = noise[:, None] ** 2 + widths**2
    likely = np.exp(-0.5 * entries[:, None] ** 2 / variance) / np.sqrt(variance) + 1e-300
    shares = np.full(len(widths), 1 / len(widths))
    for _ in range(_ROUNDS):
        belongs = shares * likely
        belongs /= belongs.sum(1, keepdims=True)
        shares = belongs.sum(0) + 1 / len(widths)
        shares /= shares.sum()
        if most is not None:
            shares = _within(shares, widths, most)
    belongs = shares * likely
    kept = widths**2 / variance
    weights, means = belongs / belongs.sum(1, keepdims=True), kept * entries[:, None]
    centre = (weights * means).sum(1)
    return Mixture(centre, weights, means - centre[:, None], np.sqrt(kept) * noise[:, None])


def _within(shares: Floats, widths: Floats, most: float) -> Floats:
    """The shares with so much moved to exact zeros that the mean square is at most ``most`` squared."""
    kept = min(1.0, most**2 / max(float(shares @ widths**2), 1e-300))
    found = kept * shares
    found[0] += 1 - kept
    return np.asarray(found)
