"""A chart as data, and how it is drawn: axes, lines, steps, points and bars in one quiet style.

Series differ by dash, shape or hatching as well as by colour, so that nothing is said by colour alone. The key stands
under the drawing as HTML, where it can wrap on a narrow screen.
"""

import itertools
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tacit.reports.pictures.axes import Axis, Frame, draw_axes
from tacit.reports.pictures.svg import image, path, tag

Shape = Literal["line", "steps", "points", "few", "bars"]
Style = Literal["strong", "warm", "guide", "pale"]


@dataclass(frozen=True, slots=True)
class Series:
    """Some numbers with one meaning.

    Args:
        style: "strong" is what the chart is about, "warm" what it is set against, "guide" a line to compare with,
            "pale" a background.
        shape: "few" are points that rest on too few records to say much, drawn hollow.
        width: of a bar, in units of x.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    style: Style = "strong"
    shape: Shape = "line"
    width: float = 0.0


@dataclass(frozen=True, slots=True)
class Chart:
    x: Axis
    y: Axis
    series: tuple[Series, ...]


def draw_chart(chart: Chart, name: str, title: str, description: str) -> str:
    """The chart as one inline SVG element."""
    frame = Frame(chart.x, chart.y)
    drawn = [_draw(series, frame) for series in chart.series if series.x]
    return image(name, title, description, frame.width, frame.height, draw_axes(frame), *drawn)


def draw_key(series: Series) -> str:
    """The sample of a series that stands in the key, hidden from assistive technology: its name stands beside it."""
    kind = f"{series.shape} {series.style}"
    match series.shape:
        case "bars":
            sample = tag("rect", x=3, y=1, width=22, height=10, class_=kind)
        case "points" | "few":
            sample = tag("circle", cx=14, cy=6, r=4.5, class_=kind)
        case _:
            sample = tag("path", d="M1,6L27,6", class_=f"line {series.style}")
    return tag("svg", sample, viewBox="0 0 28 12", class_="sample", aria_hidden="true", focusable="false")


def _draw(series: Series, frame: Frame) -> str:
    points = [(frame.across(x), frame.up(y)) for x, y in zip(series.x, series.y, strict=True)]
    kind = f"{series.shape} {series.style}"
    match series.shape:
        case "line":
            return tag("path", d=path(points), class_=kind)
        case "steps":
            return tag("path", d=path(_stairs(points)), class_=f"line {series.style}")
        case "bars":
            return "".join(_bar(x, y, series, frame) for x, y in zip(series.x, series.y, strict=True))
        case _:
            return "".join(tag("circle", cx=x, cy=y, r=4, class_=kind) for x, y in points)


def _bar(x: float, y: float, series: Series, frame: Frame) -> str:
    left, right = frame.across(x - series.width / 2), frame.across(x + series.width / 2)
    top, foot = frame.up(y), frame.up(0.0)
    return tag("rect", x=left, y=top, width=right - left, height=foot - top, class_=f"bars {series.style}")


def _stairs(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Level until the next point."""
    corners = [(after[0], before[1]) for before, after in itertools.pairwise(points)]
    return [points[0], *(point for pair in zip(corners, points[1:], strict=True) for point in pair)]


def room_above(values: tuple[float, ...]) -> float:
    """The top of an axis that starts at 0: a little above all values."""
    return float(np.max(values, initial=0.0)) * 1.08 or 1.0
