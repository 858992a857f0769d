"""Small exact formulas that readers of a privacy statement ask for."""

import math

from tacit.errors import InputError, check_count, check_not_negative, is_number


def amplification_by_sampling(epsilon: float, probability: float) -> float:
    """epsilon after Poisson sampling: log(1 + q (e^epsilon - 1)).

    delta becomes q delta (Balle, Barthe and Gaboardi 2018). The q epsilon of McMahan et al. 2018 is a rule of thumb.

    Example:
        >>> round(amplification_by_sampling(1.0, 0.01), 6)
        0.017037
    """
    check_not_negative("epsilon", epsilon)
    if not (is_number(probability) and 0 <= probability <= 1):
        raise InputError(f"probability must lie in [0, 1], found {probability!r}")
    if epsilon > 30:
        return epsilon + math.log(probability + (1 - probability) * math.exp(-epsilon)) if probability else 0.0
    return math.log1p(probability * math.expm1(epsilon))


def attack_probability(epsilon: float, delta: float = 0.0) -> float:
    """The best chance of telling two neighbours apart, from an even guess (Triastcyn and Faltings, eq. 1): P(A).

    (e^epsilon + delta) / (1 + e^epsilon).

    Example:
        >>> round(attack_probability(2.0), 4)
        0.8808
    """
    check_not_negative("epsilon", epsilon)
    if not (is_number(delta) and 0 <= delta <= 1):
        raise InputError(f"delta must lie in [0, 1], found {delta!r}")
    small = math.exp(-epsilon)
    return (1 + delta * small) / (1 + small)


def group_privacy(epsilon: float, delta: float, records: int) -> tuple[float, float]:
    """What (epsilon, delta) for one record means for ``records`` of them: (k eps, k e^(k eps) delta)."""
    check_not_negative("epsilon", epsilon)
    check_count("records", records)
    return records * epsilon, min(1.0, records * math.exp(min(700.0, records * epsilon)) * delta)
