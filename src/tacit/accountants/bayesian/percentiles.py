"""Shares of a population from a sample: Clopper-Pearson, and which percentile a sample can support.

If k of m independent records exceed a level, the share of the population above it is at most Beta^-1(1 - gamma; k+1,
m-k), but for a chance gamma (exact, whatever the distribution). So the level that at least a share p of people stay
below is an order statistic of the sample (maths.md 8 d).
"""

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincc, betainccinv

from tacit.errors import InputError, check_count


def clopper_pearson_upper(exceeding: int, records: int, gamma: float) -> float:
    """The largest share of the population above a level that ``exceeding`` of ``records`` exceed, but for gamma.

    Example:
        >>> round(clopper_pearson_upper(0, 100, 0.01), 6)
        0.045007
    """
    _check(records, gamma)
    return 1.0 if exceeding >= records else float(betainccinv(exceeding + 1, records - exceeding, gamma))


def flat_prior_upper(exceeding: int, records: int, gamma: float) -> float:
    """The same with a flat prior on the share: Beta^-1(1 - gamma; N1 + 1, N0 + 1), a little lower.

    Triastcyn and Faltings, eq. 13.
    """
    _check(records, gamma)
    return float(betainccinv(exceeding + 1, records - exceeding + 1, gamma))


def flat_prior_gamma(exceeding: int, records: int, share: float) -> float:
    """The estimator failure probability gamma that a claimed share has under the flat prior.

    Triastcyn and Faltings, 4.3.1.
    """
    return _at_most(exceeding, records + 1, share)


def most_exceeding(records: int, percentile: float, gamma: float) -> int | None:
    """The largest k whose Clopper-Pearson bound is at most 1 - percentile; None if even k = 0 says too little.

    The bound at k is at most s exactly if P(Binomial(m, s) <= k) <= gamma.

    Example:
        >>> most_exceeding(60_000, 0.999, 1e-6)
        26
    """
    _check(records, gamma)
    if not 0 < percentile < 1:
        raise InputError(f"percentile must lie strictly between 0 and 1, found {percentile!r}")
    share = 1 - percentile
    few = bisect_right(range(records), gamma, key=lambda k: _at_most(k, records, share))  # how many k are few enough
    return few - 1 if few else None


def _at_most(k: int, records: int, share: float) -> float:
    """P(Binomial(records, share) <= k), for k below records. To load scipy.stats for it would take half a second."""
    return float(betaincc(k + 1, records - k, share))


def best_percentile(records: int, gamma: float) -> float:
    """The highest percentile about which so many records can say anything: gamma^(1/m), from k = 0."""
    _check(records, gamma)
    return float(gamma ** (1 / records))


def percentile_value(values: NDArray[np.float64], percentile: float, gamma: float) -> float | None:
    """A level that at least ``percentile`` of the population stays at or below, but for a chance gamma."""
    k = most_exceeding(len(values), percentile, gamma)
    return None if k is None else float(np.sort(values)[len(values) - 1 - k])


def _check(records: int, gamma: float) -> None:
    check_count("records", records)
    if not 0 < gamma < 1:
        raise InputError(f"gamma must lie strictly between 0 and 1, found {gamma!r}")
