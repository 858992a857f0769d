"""Whole curves of a ledger: epsilon(delta), the attacker's trade-off, the closest Gaussian, and P(A)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from tacit.accountants.guarantee import check_delta, refuse_adaptive
from tacit.accountants.pld.accountant import ledger_bracket, ledger_deltas
from tacit.errors import InputError
from tacit.ledger import Ledger
from tacit.types import Floats

_SMALLEST = 1e-10  # the delta down to which a trade-off curve looks


@dataclass(frozen=True, slots=True)
class TradeOff:
    """For each false-positive rate, the least false-negative rate that any attack must have (a sound lower bound)."""

    false_positive: Floats
    false_negative: Floats

    @property
    def true_positive(self) -> Floats:
        return np.asarray(1 - self.false_negative)


def epsilon_curve(ledger: Ledger, deltas: ArrayLike) -> Floats:
    """Certified upper bounds of epsilon at each delta."""
    refuse_adaptive("pld", ledger)
    values = np.atleast_1d(np.asarray(deltas, dtype=float))
    for delta in values:
        check_delta(float(delta))
    return np.asarray([ledger_bracket(ledger, float(delta)).upper for delta in values])


def trade_off(ledger: Ledger, false_positive: ArrayLike | None = None, points: int = 400) -> TradeOff:
    """The trade-off of telling neighbours apart, as the envelope of the (epsilon, delta) lines.

    Each pair says FNR >= 1 - delta - e^epsilon FPR and FNR >= e^-epsilon (1 - delta - FPR) (Wasserman and Zhou 2010).
    """
    refuse_adaptive("pld", ledger)
    x = np.linspace(0, 1, 201) if false_positive is None else np.atleast_1d(np.asarray(false_positive, dtype=float))
    if not ((x >= 0) & (x <= 1)).all():
        raise InputError("false_positive must lie between 0 and 1")
    if not ledger.steps:
        return TradeOff(x, 1 - x)
    epsilons = np.linspace(0.0, ledger_bracket(ledger, _SMALLEST).upper, points)
    delta = ledger_deltas(ledger, epsilons)[:, None]
    ratio = np.exp(epsilons)[:, None]
    lines = np.maximum(1 - delta - ratio * x, (1 - delta - x) / ratio)
    return TradeOff(x, np.maximum(lines.max(axis=0), 0.0))


def closest_mu(curve: TradeOff) -> float:
    """The mu of the Gaussian trade-off curve whose largest vertical distance from this one is smallest."""
    inside = (curve.false_positive > 0) & (curve.false_positive < 1)
    x, y = curve.false_positive[inside], curve.false_negative[inside]

    from scipy.optimize import minimize_scalar  # takes a while to load, and is needed here alone

    def distance(mu: float) -> float:
        return float(np.abs(ndtr(ndtri(1 - x) - mu) - y).max())

    start = float(np.clip(np.median(ndtri(1 - x) - ndtri(np.clip(y, 1e-300, 1 - 1e-16))), 0, 50))
    return float(minimize_scalar(distance, bounds=(0.0, 2 * start + 1e-3), method="bounded", options={"xatol": 1e-9}).x)


def best_attack(ledger: Ledger) -> float:
    """P(A): the largest chance of guessing membership from an even prior, (1 + delta(0)) / 2."""
    refuse_adaptive("pld", ledger)
    return 0.5 * (1 + float(ledger_deltas(ledger, np.zeros(1))[0]))
