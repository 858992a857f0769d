"""The least noise on votes that keeps the data-independent bound of Confident-GNMax within a budget."""

import math

from tacit.accountants import gaussian_mu, get_accountant
from tacit.accountants.search import smallest_within
from tacit.errors import check_positive
from tacit.ledger import Ledger
from tacit.pate.confident_gnmax import ConfidentGNMax


def calibrate_confident_gnmax(
    epsilon: float, delta: float, *, queries: int, max_answers: int, threshold: float, noise_ratio: float = 2.0
) -> ConfidentGNMax:
    """The mechanism whose charge for ``queries`` is at most (epsilon, delta), whatever the votes are.

    Args:
        threshold: how many votes the noisy winner needs.
        noise_ratio: sigma_1 / sigma_2, the noise of the threshold over that of the votes.

    Example:
        >>> found = calibrate_confident_gnmax(2.0, 1e-5, queries=300, max_answers=200, threshold=150)
        >>> round(found.vote_noise, 1)
        43.6
    """
    check_positive("epsilon", epsilon)
    check_positive("noise_ratio", noise_ratio)
    pld = get_accountant("pld")

    def build(noise: float) -> ConfidentGNMax:
        return ConfidentGNMax(threshold, noise_ratio * noise, noise, max_answers)

    def cost(noise: float) -> float:
        return pld.guarantee(Ledger.planned(build(noise).charges(queries)), delta=delta).epsilon

    answers = build(1.0).charges(queries)[1].steps
    mu = gaussian_mu(epsilon, delta)  # full-batch Gaussians add up: mu^2 = queries / sigma_1^2 + 2 answers / sigma_2^2
    start = math.sqrt(queries / noise_ratio**2 + 2 * answers) / mu
    return build(smallest_within(cost, epsilon, "vote_noise", start))
