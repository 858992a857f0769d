"""Bounds for ledgers that no engine resolves: never below the truth, always a number.

Three hold for every ledger: total variation, which alone may be within delta; Chernoff's bound at any real order; and
the Gaussian mechanism without sampling. The last because a hockey-stick divergence is convex, so that (1-q) Q + q P is
no further from Q, in either direction, than P is: each step is dominated by its unsampled one, and so are all together.
Of that one, delta <= Phi(mu/2 - eps/mu) <= exp(-(eps/mu - mu/2)^2/2) for eps >= mu^2/2.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from tacit.accountants.pld.closed_form import closed_form, closed_form_epsilon
from tacit.accountants.pld.contour.solve import OneDirection
from tacit.accountants.pld.events import FAINT, Steps, UnresolvedError
from tacit.accountants.pld.search import total_variation

_Found = TypeVar("_Found")


def resolved(engine: Callable[[], _Found]) -> _Found | None:
    """What an engine finds; None where floating point, memory or the points allowed do not suffice for it."""
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            return engine()
    except (UnresolvedError, ArithmeticError, ValueError, MemoryError):
        return None


def epsilon_at_most(steps: Steps, delta: float) -> float:
    """The smallest of the bounds; infinite only where floating point cannot hold it."""
    chernoff = resolved(lambda: max(side.epsilon_at_most(delta) for side in _sides(steps)))
    gaussian = resolved(lambda: closed_form_epsilon(_unsampled(steps), delta).upper)
    mu = math.sqrt(_unsampled(steps).gaussian_square)
    simple = mu * (mu / 2 + math.sqrt(-2 * math.log(delta))) * (1 + 1e-12)
    return max(0.0, min(bound for bound in (chernoff, gaussian, simple) if bound is not None and bound == bound))


def delta_at_most(steps: Steps, epsilon: float) -> float:
    chernoff = resolved(lambda: max(side.delta_at_most(epsilon) for side in _sides(steps)))
    gaussian = resolved(lambda: float(closed_form(_unsampled(steps), np.array([epsilon]))[1][0]))
    bounds = (chernoff, gaussian, total_variation(steps))
    return min(1.0, *(bound for bound in bounds if bound is not None and bound == bound))  # nan is not itself


def _sides(steps: Steps) -> tuple[OneDirection, OneDirection]:
    return OneDirection(steps, "remove"), OneDirection(steps, "add")


def _unsampled(steps: Steps) -> Steps:
    each = np.where(steps.noise_multipliers > FAINT, np.maximum(steps.noise_multipliers, FAINT) ** -2.0, math.inf)
    square = steps.gaussian_square + float(steps.counts @ each if steps.size else 0.0)
    none = steps.counts[:0]
    return replace(
        steps, probabilities=none, noise_multipliers=none, counts=none, caps=none, gaussian_square=square * (1 + 1e-12)
    )
