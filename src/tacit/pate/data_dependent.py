"""What the answers cost given the very votes (Papernot et al. 2018, theorem 6): smaller, and private itself.

The bound depends on the votes, so that publishing it would leak; making it publishable takes a smooth-sensitivity
analysis that is not here. It is a diagnostic for the data holder, never a guarantee: those come from the ledger.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfc

from tacit.accountants.renyi.conversion import epsilon_from_rdp
from tacit.pate.confident_gnmax import ConfidentGNMax
from tacit.types import Floats

_ORDERS = tuple(np.concatenate([np.arange(1.5, 10, 0.5), np.arange(10, 64), np.geomspace(64, 500, 20).round()]))


def wrong_winner_probability(votes: ArrayLike, noise: float) -> Floats:
    """A bound of the chance that noise makes another class win: sum over j of erfc((n_max - n_j)/(2 sigma))/2."""
    counts = np.asarray(votes, dtype=float)
    winner = counts.argmax(axis=1)[:, None]
    gaps = counts.max(axis=1, keepdims=True) - counts
    terms = erfc(gaps / (2 * noise)) / 2
    np.put_along_axis(terms, winner, 0.0, axis=1)
    return np.asarray(np.minimum(terms.sum(axis=1), 1.0))


def data_dependent_epsilon(votes: ArrayLike, mechanism: ConfidentGNMax, answered: ArrayLike, delta: float) -> float:
    """The epsilon of these answers given these votes. PRIVATE: it depends on the data beyond what was released.

    Threshold checks are charged in full; an answer costs the smaller of theorem 6 and alpha / sigma_2^2.
    """
    counts, given = np.asarray(votes, dtype=float), np.asarray(answered, dtype=bool)
    orders = np.array(_ORDERS)
    chances = wrong_winner_probability(counts[given], mechanism.vote_noise)
    answers = sum((_answer(orders, float(q), mechanism.vote_noise) for q in chances), np.zeros_like(orders))
    asked = len(counts) * orders / (2 * mechanism.threshold_noise**2)
    return epsilon_from_rdp(asked + answers, _ORDERS, delta)[0]


def _answer(orders: Floats, q: float, sigma: float) -> Floats:
    """Theorem 6 with mu_2 = sigma sqrt(log 1/q), mu_1 = mu_2 + 1, where its conditions hold; else alpha / sigma^2."""
    plain = orders / sigma**2
    if not 0 < q < 1:
        return np.zeros_like(orders) if q <= 0 else plain
    order_2 = sigma * math.sqrt(-math.log(q))
    order_1 = order_2 + 1
    if order_2 <= 1:
        return plain
    eps_1, eps_2 = order_1 / sigma**2, order_2 / sigma**2
    limit = (order_2 - 1) * eps_2 - order_2 * math.log(order_1 / (order_1 - 1) * order_2 / (order_2 - 1))
    inside = (math.log(q) + eps_2) * (order_2 - 1) / order_2
    if math.log(q) > limit or inside >= 0:
        return plain
    log_a = math.log1p(-q) - math.log(-math.expm1(inside))
    log_b = eps_1 - math.log(q) / (order_1 - 1)
    both = np.logaddexp(math.log1p(-q) + (orders - 1) * log_a, math.log(q) + (orders - 1) * log_b) / (orders - 1)
    return np.where(orders <= order_1, np.minimum(plain, both), plain)
