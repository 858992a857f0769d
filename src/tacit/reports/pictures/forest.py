"""A forest plot as data, and how it is drawn: one line an effect, its interval across, and a dashed line at nothing."""

from dataclasses import dataclass

from tacit.reports.pictures.axes import Axis
from tacit.reports.pictures.svg import image, path, tag, words

_ROW, _TOP, _LEFT, _RIGHT, _WIDTH = 26.0, 12.0, 150.0, 408.0, 420.0
_LONGEST = 24  # letters of a name


@dataclass(frozen=True, slots=True)
class Effect:
    name: str
    estimate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Forest:
    """Effects on one scale.

    Example:
        >>> Forest("log odds", (Effect("age", 0.2, -0.1, 0.5),)).axis.high > 0.5
        True
    """

    label: str
    effects: tuple[Effect, ...]

    @property
    def axis(self) -> Axis:
        """From the lowest to the highest end, with 0 and a little room."""
        low, high = min(0.0, *(e.low for e in self.effects)), max(0.0, *(e.high for e in self.effects))
        room = 0.05 * (high - low) or 1.0
        return Axis(self.label, low - room, high + room)


def draw_forest(forest: Forest, name: str, title: str, description: str) -> str:
    """The plot as one inline SVG element."""
    axis, foot = forest.axis, _TOP + _ROW * len(forest.effects)

    def across(value: float) -> float:
        return _LEFT + axis.place(value) * (_RIGHT - _LEFT)

    drawn = [
        tag("path", d=path([(across(0.0), _TOP - 6), (across(0.0), foot)]), class_="line guide"),
        tag("path", d=path([(_LEFT, foot), (_RIGHT, foot)]), class_="axis"),
        words(axis.label, x=(_LEFT + _RIGHT) / 2, y=foot + 42, text_anchor="middle", class_="label"),
    ]
    drawn += [words(axis.write(v), x=across(v), y=foot + 20, text_anchor="middle", class_="tick") for v in axis.ticks()]
    for number, effect in enumerate(forest.effects):
        y = _TOP + _ROW * (number + 0.5)
        drawn.append(words(_short(effect.name), x=_LEFT - 10, y=y + 4, text_anchor="end", class_="tick"))
        drawn.append(tag("path", d=path([(across(effect.low), y), (across(effect.high), y)]), class_="line strong"))
        drawn.append(tag("circle", cx=across(effect.estimate), cy=y, r=4, class_="points strong"))
    return image(name, title, description, _WIDTH, foot + 50, *drawn)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"
