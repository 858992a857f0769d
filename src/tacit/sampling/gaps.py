"""Independent draws of rare units by the gaps between them, in time and memory of what is drawn, not of the population.

Exactness. With probability p = ``threshold`` / 2^64 the number G of units that are passed over before the next drawn
one has P(G >= k) = (1 - p)^k, so G = floor(log U / log(1 - p)) for a uniform U in (0, 1): not an approximation of
Poisson sampling but the same law. U is taken as a real number whose bits come one word at a time. After the first 64 of
them it lies in an interval; where both of its ends, moved apart by more than float64 can err, give the same whole
number, that is G. Where they do not, which happens about once in 1e8 draws at p = 1e-4, further words and decimal
logarithms of growing precision decide. So the law is exact but for the rounding of p itself, which is down.
"""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np
import numpy.typing as npt

from tacit.types import Indices

Words = Callable[[int], npt.NDArray[np.uint64]]
_FAR = 2**62  # beyond every population
_ERROR = 8e-15  # of log U / log(1 - p) in float64: two logarithms, a quotient and the words' own rounding, with room


def drawn_by_gaps(threshold: int, population: int, words: Words) -> Indices:
    """The drawn units, ascending. A unit more, at the end, does not change what the others draw.

    Example:
        >>> from tacit.randomness import Randomness
        >>> chance = Randomness.seeded(1)
        >>> len(drawn_by_gaps(2**64 // 1000, 10**6, lambda count: chance.words("sampling", count)))
        992
    """
    if threshold == 0:
        return np.arange(0)
    expected = population * (threshold / 2**64)
    parts, last = [], -1
    while last < population:  # one turn, but for once in 1e20
        gaps = _gaps(threshold, words(int(expected + 10 * math.sqrt(expected) + 64)), words, population)
        places = last + np.cumsum(np.minimum(gaps, population) + 1)
        parts.append(places[places < population])
        last = int(places[-1])
    return np.concatenate(parts)


def _gaps(threshold: int, first: npt.NDArray[np.uint64], words: Words, population: int = _FAR) -> Indices:
    """The gap that each word decides; where 64 bits do not, more are drawn for it.

    Beyond the population all gaps are alike. At a rate of 1e-15 nearly all are there, and 64 bits could tell none.
    """
    rate = math.log1p(-threshold / 2**64)
    with np.errstate(divide="ignore"):  # the word 0 begins an interval at 0: its gap has no upper end yet
        most = _log(first) / rate * (1 + _ERROR)
        least = _log(first, above=True) / rate * (1 - _ERROR)
    gaps = np.minimum(np.floor(least), _FAR).astype(np.int64)
    for place in np.flatnonzero((np.floor(most) != np.floor(least)) & (least < population)):
        gaps[place] = min(_FAR, _decided(threshold, int(first[place]), words))
    return gaps


def _log(word: npt.NDArray[np.uint64], *, above: bool = False) -> npt.NDArray[np.float64]:
    """log(word / 2^64), or of the next word: near 1 by what is missing, so that nothing cancels."""
    missing = (~word).astype(np.float64) + (0.0 if above else 1.0)
    found = word.astype(np.float64) + (1.0 if above else 0.0)
    low = np.log(found / 2**64)
    return np.asarray(np.where(missing < 2.0**63, np.log1p(-np.minimum(missing, 2.0**63) / 2**64), low))


def _decided(threshold: int, word: int, words: Words) -> int:
    """One gap, exactly: more bits and more digits until both ends of the interval agree."""
    bits = 64
    while True:
        bits, word = bits + 64, (word << 64) | int(words(1)[0])
        with localcontext() as context:
            context.prec = bits
            error = Decimal(10) ** -(bits // 2)  # far above that of the logarithms
            least, most = _ratio(threshold, word + 1, bits) - error, _ratio(threshold, word, bits) + error
        if most.is_finite() and math.floor(least) == math.floor(most):
            return max(0, math.floor(least))


def _ratio(threshold: int, end: int, bits: int) -> Decimal:
    """log(end / 2^bits) / log(1 - p)."""
    rate = Decimal(2**64 - threshold).ln() - Decimal(2**64).ln()
    return (Decimal(end).ln() - Decimal(2**bits).ln()) / rate
