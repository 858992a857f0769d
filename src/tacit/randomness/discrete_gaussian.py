"""The discrete Gaussian on whole numbers, P(x) ~ exp(-x^2 / (2 sigma^2)), drawn exactly.

Canonne, Kamath and Steinke 2020, algorithms 1 to 3, many draws at a time, for a whole sigma. Every decision compares
whole numbers with uniform whole numbers: no logarithm, no exponential and no float takes part, so that the draws follow
the distribution itself and not its nearest floats. The chance of exp(-x) comes from coins of chance x/k (algorithm 1),
and the squares that would not fit in 64 bits are taken apart: with u = a sigma + b,

    exp(-u^2 / (2 sigma^2)) = exp(-1/2)^(a^2) * exp(-b/sigma)^a * exp(-b^2 / (2 sigma^2)).
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InputError

Words = Callable[[int], NDArray[np.uint64]]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

LARGEST = 1 << 52  # sigma: sums of draws stay far from the end of 64 bits
_LANES = 1 << 16  # proposals at a time, so that the tables stay in cache
_PROPOSALS = 2.2  # per accepted draw: 1 / (0.632 * 0.760) and a little more


def discrete_gaussians(words: Words, sigma: int, count: int) -> Ints:
    """``count`` draws from a source of uniform 64-bit words.

    Example:
        >>> from tacit.randomness import Randomness
        >>> source = Randomness.seeded(1)
        >>> draws = discrete_gaussians(lambda n: source.words("noise", n), 1000, 10_000)
        >>> bool(950 < draws.std() < 1050)
        True
    """
    if not isinstance(sigma, int) or not 1 <= sigma <= LARGEST:
        raise InputError(f"sigma must be a whole number from 1 to 2^52, found {sigma!r}")
    coins = _Coins(words, sigma)
    found = np.empty(count, dtype=np.int64)
    filled = 0
    while filled < count:
        lanes = min(_LANES, int(_PROPOSALS * (count - filled)) + 16)
        draws = coins.accepted(lanes)[: count - filled]
        found[filled : filled + len(draws)] = draws
        filled += len(draws)
    return found


class _Coins:
    """Coins whose chances are exact; each takes fresh words for each lane."""

    def __init__(self, words: Words, sigma: int) -> None:
        self._words = words
        self._sigma = sigma

    def accepted(self, lanes: int) -> Ints:
        """Algorithm 3: discrete Laplace draws of scale sigma, kept with chance exp(-(|y| - sigma)^2 / (2 sigma^2))."""
        y = self._laplace(lanes)
        a, b = np.divmod(np.abs(np.abs(y) - self._sigma), self._sigma)
        kept = self._repeated(a * a, lambda lane: self._exp(len(lane), lambda one: self._below(2, len(one)) == 0))
        kept = kept[self._repeated(a[kept], lambda lane: self._exp_ratio(b[kept][lane]))]
        kept = kept[self._exp_half_square(b[kept])]
        return np.asarray(y[kept])

    def _laplace(self, lanes: int) -> Ints:
        """Algorithm 2: u below sigma kept with chance exp(-u/sigma), plus sigma times a geometric number, signed."""
        u = self._below(self._sigma, lanes)
        u = u[self._exp_ratio(u)]
        size = u + self._sigma * self._geometric(len(u))
        negative = self._below(2, len(u)) == 1
        kept = ~(negative & (size == 0))  # zero has one sign only
        return np.asarray(np.where(negative, -size, size)[kept])

    def _geometric(self, lanes: int) -> Ints:
        """How many coins of chance exp(-1) come up before the first that does not."""
        found = np.zeros(lanes, dtype=np.int64)
        alive = np.arange(lanes)
        while alive.size:
            alive = alive[self._exp(alive.size, lambda one: np.ones(len(one), dtype=bool))]
            found[alive] += 1
        return found

    def _repeated(self, times: Ints, coin: Callable[[Ints], Bools]) -> Ints:
        """The lanes whose coin comes up as often as asked for."""
        alive = np.arange(len(times))
        done = 0
        while (tossing := times[alive] > done).any():
            kept = np.ones(len(alive), dtype=bool)
            kept[tossing] = coin(alive[tossing])
            alive = alive[kept]
            done += 1
        return alive

    def _exp_ratio(self, b: Ints) -> Bools:
        """Chance exp(-b/sigma) for 0 <= b < sigma."""
        return self._exp(len(b), lambda one: self._below(self._sigma, len(one)) < b[one])

    def _exp_half_square(self, b: Ints) -> Bools:
        """Chance exp(-b^2 / (2 sigma^2)): a coin of b/sigma, another one and a fair one."""

        def coin(one: Ints) -> Bools:
            up = self._below(self._sigma, len(one)) < b[one]
            up[up] = self._below(self._sigma, int(up.sum())) < b[one[up]]
            up[up] = self._below(2, int(up.sum())) == 0
            return up

        return self._exp(len(b), coin)

    def _exp(self, lanes: int, coin: Callable[[Ints], Bools]) -> Bools:
        """Algorithm 1: chance exp(-x) from coins of chance x <= 1; the number k at which x/k first fails is odd."""
        result = np.zeros(lanes, dtype=bool)
        alive, k = np.arange(lanes), 1
        while alive.size:
            up = coin(alive)
            if k > 1:
                up[up] = self._below(k, int(up.sum())) == 0
            result[alive[~up]] = k % 2 == 1
            alive, k = alive[up], k + 1
        return result

    def _below(self, limit: int, count: int) -> Ints:
        """Uniform whole numbers below ``limit``: so many bits as it needs, and what is too large is drawn again."""
        bits = (limit - 1).bit_length()
        if bits == 0:
            return np.zeros(count, dtype=np.int64)
        found = self._some(bits, count)
        while (again := np.flatnonzero(found >= limit)).size:
            found[again] = self._some(bits, again.size)
        return found

    def _some(self, bits: int, count: int) -> Ints:
        return (self._words(count) >> np.uint64(64 - bits)).astype(np.int64)
