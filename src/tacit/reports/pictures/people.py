"""P(A) as a picture that needs no mathematics: of 100 people who guess, how many are right at best?"""

import math
from dataclasses import dataclass

from tacit.reports.pictures.svg import image, tag

_SIDE = 26.0
_ACROSS = 20


@dataclass(frozen=True, slots=True)
class People:
    """100 guesses: 50 are right by tossing a coin, at most ``more`` beyond them because of what was released."""

    more: int

    @classmethod
    def of(cls, attack: float) -> "People":
        """Whole people, rounded up: a picture must not look better than the bound.

        Example:
            >>> People.of(0.5623).more
            7
        """
        return cls(min(50, max(0, math.ceil(100 * attack - 1e-9) - 50)))

    @property
    def right(self) -> int:
        return 50 + self.more

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """Each kind of person in the picture, with what it means."""
        more = f"{self.more} more at most, because of what was released" if self.more else "none more"
        return ("luck", "50 right by tossing a coin"), ("model", more), ("wrong", f"{50 - self.more} wrong")


def draw_people(people: People, name: str, title: str, description: str) -> str:
    """A hundred figures in rows of twenty: filled, filled with a raised arm, and outlined."""
    figures = [_figure(number, _kind(number, people)) for number in range(100)]
    return image(name, title, description, _SIDE * _ACROSS, 40.0 * (100 // _ACROSS), *figures)


def draw_person_key(kind: str) -> str:
    person = _person(kind)
    return tag("svg", person, viewBox="0 0 26 38", class_="sample person", aria_hidden="true", focusable="false")


def _kind(number: int, people: People) -> str:
    if number < 50:
        return "luck"
    return "model" if number < people.right else "wrong"


def _figure(number: int, kind: str) -> str:
    row, column = divmod(number, _ACROSS)
    return tag("g", _person(kind), transform=f"translate({column * _SIDE:g} {row * 40:g})")


def _person(kind: str) -> str:
    """Head and shoulders in a box of 26 by 38; the ones that the release gave away raise an arm."""
    parts = [
        tag("circle", cx=13, cy=11, r=5, class_=f"who {kind}"),
        tag("path", d="M4.5,35v-7a8.5,8.5 0 0 1 17,0v7z", class_=f"who {kind}"),
    ]
    if kind == "model":
        parts.append(tag("path", d="M20.5,25L23.5,6", class_="arm"))
    return "".join(parts)
