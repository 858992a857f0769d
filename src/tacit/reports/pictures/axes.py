"""Axes: where a number stands in a drawing, which numbers are written beside it, and the lines that carry them."""

import math
from dataclasses import dataclass
from typing import ClassVar

from tacit.reports.pictures.svg import tag, words


@dataclass(frozen=True, slots=True)
class Axis:
    """From ``low`` to ``high``; by powers of ten if ``log``; written as percent if ``percent``."""

    label: str
    low: float
    high: float
    log: bool = False
    percent: bool = False

    def place(self, value: float) -> float:
        """Where a value stands, from 0 (low) to 1 (high); what lies beyond an end is drawn at it."""
        low, high, value = (self._scale(item) for item in (self.low, self.high, value))
        return min(max((value - low) / (high - low), 0.0), 1.0)

    def ticks(self) -> list[float]:
        """At most about six round numbers."""
        if self.log:
            return self._log_ticks()
        step = _round_step((self.high - self.low) / 5)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]

    def _log_ticks(self) -> list[float]:
        """Powers of ten; with 2 and 5 times them where there are fewer than three."""
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        if last - first < 2:
            rough = [factor * 10.0**power for power in range(first - 1, last + 1) for factor in (1, 2, 5)]
            return [value for value in rough if self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)]
        every = max(1, -(-(last - first) // 5))
        return [10.0**power for power in range(first, last + 1, every)]

    def write(self, value: float) -> str:
        if self.percent:
            return f"{100 * value:.4g} %"
        if self.log and not 1e-3 <= value < 1e4:
            return f"1e{round(math.log10(value))}"
        return f"{round(value, 10):,.6g}" if value < 1e6 else f"{value:.3g}"

    def _scale(self, value: float) -> float:
        return math.log10(max(value, 1e-300)) if self.log else value


def _round_step(rough: float) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that is not below.

    Example:
        >>> _round_step(0.17)
        0.2
    """
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= rough * (1 - 1e-9))


@dataclass(frozen=True, slots=True)
class Frame:
    """The part of a drawing that two axes span. Small, so that its letters stay readable on a telephone."""

    x: Axis
    y: Axis

    width: ClassVar[float] = 420.0
    height: ClassVar[float] = 304.0
    left: ClassVar[float] = 58.0
    right: ClassVar[float] = 390.0
    top: ClassVar[float] = 34.0
    foot: ClassVar[float] = 250.0

    def across(self, x: float) -> float:
        return self.left + self.x.place(x) * (self.right - self.left)

    def up(self, y: float) -> float:
        return self.foot - self.y.place(y) * (self.foot - self.top)


def draw_axes(frame: Frame) -> str:
    """Faint lines across at the ticks of y, numbers at both axes, and what they measure."""
    drawn = [
        tag("path", d=f"M{frame.left:g},{frame.foot:g}L{frame.right:g},{frame.foot:g}", class_="axis"),
        words(frame.y.label, x=2, y=16, class_="label"),
        words(
            frame.x.label, x=(frame.left + frame.right) / 2, y=frame.height - 8, text_anchor="middle", class_="label"
        ),
    ]
    for value in frame.y.ticks():
        y = frame.up(value)
        drawn.append(tag("path", d=f"M{frame.left:g},{y:.2f}L{frame.right:g},{y:.2f}", class_="grid"))
        drawn.append(words(frame.y.write(value), x=frame.left - 7, y=y + 4, text_anchor="end", class_="tick"))
    for value in frame.x.ticks():
        x = frame.across(value)
        drawn.append(tag("path", d=f"M{x:.2f},{frame.foot:g}L{x:.2f},{frame.foot + 4:g}", class_="axis"))
        drawn.append(words(frame.x.write(value), x=x, y=frame.foot + 23, text_anchor="middle", class_="tick"))
    return "".join(drawn)
