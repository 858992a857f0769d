"""Priors on coefficients, joined to draws under a flat one: the draws stand for a normal likelihood N(m, V).

A prior is about the effect of half a number's declared range, or of a level against its reference, so that it does not
depend on units; intercepts stay flat.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tacit.errors import InputError
from tacit.types import Floats

PriorKind = Literal["flat", "gaussian", "laplace"]
_USUAL = 2.5
_SWEEPS = 10
_CHAINS = 4000  # each starts at a draw under the flat prior


@dataclass(frozen=True, slots=True)
class Prior:
    """flat, gaussian with this standard deviation, or laplace with this mean absolute value.

    Example:
        >>> Prior.parse("gaussian:1.5")
        Prior(kind='gaussian', scale=1.5)
    """

    kind: PriorKind = "flat"
    scale: float = _USUAL

    @classmethod
    def parse(cls, text: str) -> "Prior":
        kind, _, scale = text.partition(":")
        try:
            found = float(scale) if scale else _USUAL
        except ValueError:
            found = math.nan
        if kind not in ("flat", "gaussian", "laplace") or not 0 < found < math.inf:
            raise InputError(f"a prior is flat, gaussian:SCALE or laplace:SCALE with a scale above 0, found {text!r}")
        return cls(kind, found)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return self.kind if self.kind == "flat" else f"{self.kind}:{self.scale:g}"


def with_prior(draws: Floats, prior: Prior, units: Floats, *, seed: int = 1) -> Floats:
    """Draws under the prior.

    Args:
        draws: [draws, coefficients] under a flat prior.
        units: how far the prior's unit effect reaches for each coefficient; infinite for no prior.

    Example:
        >>> wide = np.random.default_rng(0).normal(3.0, 1.0, size=(4000, 1))
        >>> round(float(with_prior(wide, Prior("gaussian", 1.0), np.ones(1)).mean()), 1)
        1.5
    """
    if prior.kind == "flat":
        return draws
    mean, precision = draws.mean(0), np.linalg.inv(np.atleast_2d(np.cov(draws.T)))
    weak = (prior.scale * units) ** -2
    if prior.kind == "gaussian":
        return _matched(draws, precision, np.diag(weak), precision @ mean)
    chance, found = np.random.default_rng(seed), draws[:: max(1, len(draws) // _CHAINS)]
    for _ in range(_SWEEPS):  # scale mixture of normals: 1/tau^2 is inverse Gaussian (Park and Casella 2008)
        size = np.maximum(np.abs(found), 1e-12 * np.abs(mean).max() + 1e-300)
        held = np.isfinite(units)
        inverse = np.zeros_like(found)
        lam = np.sqrt(weak[held])
        inverse[:, held] = chance.wald(lam / size[:, held], lam**2)
        found = np.stack([_one(precision, row, mean, chance) for row in inverse])
    return found


def _one(precision: Floats, inverse: Floats, mean: Floats, chance: np.random.Generator) -> Floats:
    total = precision + np.diag(inverse)
    root = np.linalg.cholesky(total)
    centre = np.linalg.solve(total, precision @ mean)
    return np.asarray(centre + np.linalg.solve(root.T, chance.standard_normal(len(mean))))


def _matched(draws: Floats, precision: Floats, added: Floats, pull: Floats) -> Floats:
    """The draws moved and squeezed to the conjugate posterior."""
    total = precision + added
    centred = draws - draws.mean(0)
    squeeze = np.linalg.cholesky(np.linalg.inv(total)) @ np.linalg.cholesky(precision).T
    return np.asarray(np.linalg.solve(total, pull) + centred @ squeeze.T)
