"""What a statistician reads: estimate, interval, ratio, P(effect > 0), and what the width is made of."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.errors import InputError, check_inside
from tacit.regression.design import Design
from tacit.tables.files import shown
from tacit.types import Floats

UNCLEAR = 0.05  # the share of a coefficient in unclear directions beyond which no interval is stated


@dataclass(frozen=True, slots=True)
class Coefficient:
    """One row of the table.

    Args:
        low, high: the central credible interval; None where it cannot be stated.
        ratio: exp of estimate and interval, for odds or rates.
        positive: P(effect > 0).
        sampling, privacy: standard deviations: what the data leaves, and what the noise adds.
        is_identified: whether the releases say enough about it.
    """

    name: str
    estimate: float | None
    low: float | None
    high: float | None
    level: float
    stddev: float | None
    positive: float | None
    sampling: float
    privacy: float
    ratio: tuple[float | None, float | None, float | None] | None
    is_identified: bool = True

    @property
    def privacy_share(self) -> float:
        """How much of the interval's width is privacy: 1 - the width without it over the width with it."""
        total = math.hypot(self.sampling, self.privacy)
        return 1 - self.sampling / total if total else 0.0

    def to_json(self) -> dict[str, Any]:
        ratio = None if self.ratio is None else dict(zip(("estimate", "low", "high"), self.ratio, strict=True))
        return {
            "name": self.name, "estimate": self.estimate, "low": self.low, "high": self.high, "level": self.level,
            "stddev": self.stddev, "probability_positive": self.positive, "ratio": ratio,
            "stddev_sampling": self.sampling, "stddev_privacy": self.privacy, "privacy_share": self.privacy_share,
            "identified": self.is_identified,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Draws:
    """Draws of the reported coefficients and what their spread is made of. Public.

    Args:
        values: [draws, coefficients].
        sampling: the covariance that the data would leave without privacy.
        unclear: the share of each coefficient that lies in directions that are not identified.
        is_proper: whether a prior holds what the releases leave open, so that intervals can be stated everywhere.
    """

    names: tuple[str, ...]
    values: Floats
    sampling: Floats
    unclear: Floats
    is_proper: bool = False


def summarise(draws: Draws, level: float, *, ratios: bool) -> list[Coefficient]:
    """One row for each coefficient."""
    check_inside("level", level)
    return [
        _row(
            name,
            draws.values[:, i],
            math.sqrt(max(float(draws.sampling[i, i]), 0.0)),
            level,
            ratios,
            _is_stated(draws, i),
            draws.unclear[i],
        )
        for i, name in enumerate(draws.names)
    ]


def _is_stated(draws: Draws, number: int) -> bool:
    return bool(draws.unclear[number] <= UNCLEAR) or draws.is_proper


def _row(
    name: str, values: Floats, sampling: float, level: float, ratios: bool, stated: bool, unclear: float
) -> Coefficient:
    stddev = float(values.std())
    privacy = math.sqrt(max(stddev**2 - sampling**2, 0.0))
    if not stated:
        nothing = (None, None, None) if ratios else None
        return Coefficient(name, None, None, None, level, None, None, sampling, privacy, nothing, False)
    low, middle, high = (float(v) for v in np.quantile(values, [(1 - level) / 2, 0.5, (1 + level) / 2]))
    ratio = (_exp(middle), _exp(low), _exp(high)) if ratios else None
    positive = float((values > 0).mean())
    return Coefficient(
        name,
        middle,
        low,
        high,
        level,
        stddev,
        positive,
        min(sampling, stddev),
        privacy,
        ratio,
        bool(unclear <= UNCLEAR),
    )


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))


def contrast(draws: Draws, text: str, design: Design, outputs: Sequence[str] = ("",)) -> Draws:
    """The difference of two levels or coefficients, as in ``drug=yes - drug=no``, for each output.

    Example:
        >>> from tacit.tables import Category
        >>> design = Design((Category("drug", ("none", "a", "b")),))
        >>> draws = Draws(design.names, np.array([[0.0, 1.0, 3.0], [0.0, 2.0, 5.0]]), np.eye(3), np.zeros(3))
        >>> contrast(draws, "drug=b - drug=a", design).values.ravel().tolist()
        [2.0, 3.0]
    """
    found = [_weights(draws, text, design, output) for output in outputs]
    names = tuple(f"{output}{text.strip()}" for output in outputs)
    weights = np.stack(found, axis=1)
    unclear = np.array([draws.unclear[column != 0].max(initial=0.0) for column in weights.T])
    return Draws(names, draws.values @ weights, weights.T @ draws.sampling @ weights, unclear, draws.is_proper)


def _weights(draws: Draws, text: str, design: Design, output: str) -> Floats:
    found = np.zeros(len(draws.names))
    sides = re.split(r"\s+-\s+", text.strip())
    if len(sides) != 2:
        raise InputError(f'a contrast is a difference, as in "drug=yes - drug=no", found {text!r}')
    for sign, side in zip((1.0, -1.0), sides, strict=True):
        place = _place(draws.names, side, design, output)
        if place is not None:
            found[place] += sign
    if not found.any():
        raise InputError(f"the two sides of the contrast {text!r} are the same")
    return found


def _place(names: Sequence[str], side: str, design: Design, output: str) -> int | None:
    """Which coefficient a side means; None for a reference level, whose effect is 0."""
    column, _, text = (part.strip() for part in side.partition("="))
    level = design.level(column, text)
    wanted = output + (f"{column} = {level}" if level is not None else side.strip())
    if wanted in names:
        return list(names).index(wanted)
    if level is not None and design.references.get(column) == level:
        return None
    raise InputError(f"the contrast names {side.strip()!r}, which is no coefficient; there are {shown(list(names))}")
