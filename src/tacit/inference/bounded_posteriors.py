"""Posteriors whose log-likelihood is bounded and from which one can draw *exactly*: what one posterior sample needs.

Both densities below are log-concave on a box. A tangent of a concave function lies above it, so the exponential of the
tangent at any point m is an envelope: propose from it, coordinate by coordinate, and accept with the density over the
envelope. What is accepted has the right distribution, whatever m is; a good m only saves time. (How long it takes does
depend on the data: do not publish the time.)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from tacit.errors import InputError, check_count, check_positive, is_number
from tacit.types import Floats, Vectors

Uniforms = Callable[[int], Floats]  # numbers strictly between 0 and 1
_PROPOSALS = 1024
_GRID = 2.0**-30  # draws are rounded to it: the last bits of a float could tell how it was computed


class BoundedPosterior(Protocol):
    @property
    def log_likelihood_range(self) -> float:
        """How far one record's log-likelihoods can lie apart, over all records and all parameters."""

    @property
    def exact(self) -> bool:
        """Whether ``draw`` has exactly the posterior's distribution. Privacy rests on it."""

    def draw(self, data: Any, power: float, uniforms: Uniforms) -> Vectors:
        """One draw from exp(power * log-likelihood) times the prior."""


@dataclass(frozen=True, slots=True)
class BoundedBernoulli:
    """The share of ones among zeros and ones, kept within [least, 1 - least], with a Beta(a, b) prior, a and b >= 1.

    Values above 1/2 count as one and all others, NaN too, as zero: no record can leave the bound.

    Example:
        >>> round(BoundedBernoulli(least=0.05).log_likelihood_range, 3)
        2.944
    """

    least: float
    a: float = 1.0
    b: float = 1.0

    exact = True

    def __post_init__(self) -> None:
        if not (isinstance(self.least, float) and 0 < self.least < 0.5):
            raise InputError(f"least must lie strictly between 0 and 1/2, found {self.least!r}")
        if not all(is_number(value) and value >= 1 for value in (self.a, self.b)):
            raise InputError(f"a and b must be finite and at least 1, found {self.a!r} and {self.b!r}")

    @property
    def log_likelihood_range(self) -> float:
        return math.log((1 - self.least) / self.least)

    def draw(self, data: Any, power: float, uniforms: Uniforms) -> Vectors:
        ones = np.asarray(data, dtype=float).reshape(-1) > 0.5
        a = self.a - 1 + power * float(ones.sum())
        b = self.b - 1 + power * float((~ones).sum())

        def log_density(theta: Floats) -> Floats:
            return np.asarray(a * np.log(theta[:, 0]) + b * np.log1p(-theta[:, 0]))

        low, high = np.array([self.least]), np.array([1 - self.least])
        mode = np.clip([a / (a + b) if a + b else 0.5], low, high)
        slope = a / mode - b / (1 - mode)
        return {"probability": torch.tensor(_draw_log_concave(log_density, mode, slope, low, high, uniforms))}


@dataclass(frozen=True, slots=True)
class BoundedLogistic:
    """Logistic regression without intercept whose weights lie in the box |w_j| <= bound, for few features.

    Each record is scaled to an L1 norm of at most 1, so that |x . w| <= bound and the log-likelihood
    -log(1 + exp(-y x . w)) has the range log((1 + e^bound) / (1 + e^-bound)) = bound. The prior is N(0, prior_stddev^2)
    inside the box. Draws are by rejection, whose price grows exponentially with the number of features: a handful.
    Data is (features [records, features], labels): labels above 1/2 mean yes; NaN counts as 0.
    """

    features: int
    bound: float = 5.0
    prior_stddev: float = 2.0

    exact = True

    def __post_init__(self) -> None:
        check_count("features", self.features)
        check_positive("bound", self.bound)
        check_positive("prior_stddev", self.prior_stddev)
        if self.features > 6:
            raise InputError(f"an exact draw by rejection takes at most 6 features, found {self.features}")

    @property
    def log_likelihood_range(self) -> float:
        return self.bound

    def draw(self, data: Any, power: float, uniforms: Uniforms) -> Vectors:
        from scipy.optimize import minimize  # takes a while to load, and is needed here alone

        rows, counts = np.unique(self._signed_rows(data), axis=0, return_counts=True)  # tables repeat themselves

        def log_density(w: Floats) -> Floats:
            fit = -np.logaddexp(0.0, -w @ rows.T) @ counts
            return np.asarray(power * fit - np.square(w).sum(1) / (2 * self.prior_stddev**2))

        def slope(w: Floats) -> Floats:
            return np.asarray(power * ((counts * expit(-rows @ w)) @ rows) - w / self.prior_stddev**2)

        low, high = np.full(self.features, -self.bound), np.full(self.features, self.bound)
        found = minimize(
            lambda w: -float(log_density(w[None])[0]), np.zeros(self.features), jac=lambda w: -slope(w),
            bounds=list(zip(low, high, strict=True)), method="L-BFGS-B",
        )  # fmt: skip
        mode = np.clip(np.nan_to_num(found.x), low, high)
        drawn = _draw_log_concave(log_density, mode, slope(mode), low, high, uniforms)
        return {"weight": torch.tensor(drawn)[None]}

    def _signed_rows(self, data: Any) -> Floats:
        """y x of every record, scaled into the L1 ball: all that the likelihood sees of it."""
        features, labels = (part.detach().cpu().numpy() if isinstance(part, Tensor) else part for part in data)
        x = np.nan_to_num(np.asarray(features, dtype=float), posinf=0.0, neginf=0.0).reshape(-1, self.features)
        scaled = x / np.maximum(np.abs(x).sum(1, keepdims=True), 1.0)
        signs = np.where(np.asarray(labels, dtype=float).reshape(-1, 1) > 0.5, 1.0, -1.0)
        return np.asarray(signs * scaled)


def _draw_log_concave(
    log_density: Callable[[Floats], Floats], m: Floats, slope: Floats, low: Floats, high: Floats, uniforms: Uniforms
) -> Floats:
    """One exact draw from a log-concave density on a box, by rejection from the exponential of its tangent at m."""
    top = float(log_density(m[None])[0])
    while True:  # never given up: to stop after some number of tries would be a release that nobody accounted for
        u = uniforms(_PROPOSALS * (len(m) + 1)).reshape(_PROPOSALS, len(m) + 1)
        proposals = _tilted(u[:, 1:], slope, low, high)
        gap = log_density(proposals) - top - (proposals - m) @ slope
        accepted = np.flatnonzero(np.log(u[:, 0]) < gap)
        if accepted.size:
            return np.asarray(np.round(proposals[accepted[0]] / _GRID) * _GRID)


def _tilted(u: Floats, slope: Floats, low: Floats, high: Floats) -> Floats:
    """Draws with density proportional to exp(slope x) on [low, high], by the inverse distribution function."""
    steep = np.abs(slope) * (high - low)
    with np.errstate(divide="ignore", invalid="ignore"):
        # from the end where the density is largest: distance t with density exp(-|slope| t)
        distance = -np.log1p(u * np.expm1(-steep)) / np.abs(slope)
    distance = np.where(steep < 1e-12, u * (high - low), distance)
    return np.asarray(np.clip(np.where(slope > 0, high - distance, low + distance), low, high))
