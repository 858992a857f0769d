"""Renyi divergences of events and of whole ledgers, all events and all orders at once."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from tacit.accountants.guarantee import refuse_event
from tacit.accountants.renyi.balls_in_bins import pass_log_moments, passes
from tacit.accountants.renyi.discrete import discrete_log_moments
from tacit.accountants.renyi.fixed_size import fixed_size_log_moments
from tacit.accountants.renyi.moments import ORDERS, checked_orders, log_moments, poisson_log_moments
from tacit.accountants.renyi.posterior_sample import posterior_sample_log_moments
from tacit.accountants.renyi.trials import tuned_log_moments
from tacit.ledger import (
    BallsInBinsStep,
    DiscretePoissonSample,
    FixedSizeSample,
    Ledger,
    PoissonSample,
    PosteriorSample,
    Tuned,
)
from tacit.types import Floats


def subsampled_gaussian_rdp(probability: ArrayLike, noise_multiplier: ArrayLike, orders: ArrayLike) -> Floats:
    """Renyi divergences [events, orders] of Poisson-sampled Gaussian releases, add/remove neighbours.

    The direction "remove" is the larger one (proved by Mironov et al. 2019, section 3), so it alone is needed.

    Example:
        >>> float(subsampled_gaussian_rdp(0.01, 1.0, 2.0)[0, 0].round(9))
        0.000171813
    """
    a = checked_orders(np.atleast_1d(np.asarray(orders, dtype=float)))
    return np.asarray(log_moments(probability, noise_multiplier, a) / (a - 1))


def reverse_log_moment(probability: float, noise_multiplier: float, moment: float) -> float:
    """lambda D_{lambda+1}(N(0) || mixture), for the direction "add".

    The exact R term of Triastcyn and Faltings, theorem 3.
    """
    return float(log_moments(probability, noise_multiplier, -moment)[0, 0])


def renyi_curve(ledger: Ledger, orders: Sequence[float] = ORDERS, name: str = "rdp") -> Floats:
    """The Renyi divergence of the whole ledger at each order; what cannot be read is refused by name."""
    a = checked_orders(np.asarray(orders, dtype=float))
    steps = ledger.merged()
    rows = [(e.probability, e.noise_multiplier, n) for e, n in steps.items() if isinstance(e, PoissonSample)]
    total = poisson_log_moments(rows, a)
    for event, count in steps.items():
        match event:
            case PoissonSample() | BallsInBinsStep():
                pass  # all Poisson events at once, above; balls in bins by whole passes, below
            case FixedSizeSample(probability=q, noise_multiplier=z):
                total += count * fixed_size_log_moments(q, z, a)
            case DiscretePoissonSample(probability=q, noise_multiplier=z):
                total += count * discrete_log_moments(q, z, a)
            case PosteriorSample(exact=True, epsilon=epsilon):
                total += count * posterior_sample_log_moments(epsilon, a)
            case Tuned():
                total += count * tuned_log_moments(event, a)
            case _:
                raise refuse_event(name, event)
    for item, count in passes(ledger).items():
        total += count * pass_log_moments(item, a)
    return np.asarray(total / (a - 1))
