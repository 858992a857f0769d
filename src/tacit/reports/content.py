"""What a report says, before anything is said about how it looks: sections of words, tables, pictures and commands.

The three formats (HTML, Markdown, JSON) render these values and compute nothing, so they cannot disagree.
"""

from dataclasses import dataclass
from typing import Any, Literal

from tacit.accountants import Guarantee, Refusal
from tacit.reports.pictures.chart import Chart
from tacit.reports.pictures.forest import Forest
from tacit.reports.pictures.people import People

Tone = Literal["danger", "caution"]


@dataclass(frozen=True, slots=True)
class Paragraph:
    text: str


@dataclass(frozen=True, slots=True)
class Points:
    """A list of sentences under a few words."""

    title: str
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Terms:
    """Words and what they mean, or names and their values; ``large`` for a few numbers that a reader looks for."""

    rows: tuple[tuple[str, str], ...]
    large: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under named columns.

    Args:
        caption: what the table is, for a reader who comes to it first.
        numeric: the columns that hold numbers, which stand flush right.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture, and in ``description`` the same in words for whoever cannot see it."""

    name: str
    title: str
    description: str
    drawing: Chart | Forest | People


@dataclass(frozen=True, slots=True)
class Commands:
    """Lines to type."""

    lines: tuple[str, ...]


Block = Paragraph | Points | Terms | Table | Picture | Commands


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the page. ``private`` parts rest on single records and are never in a report unless asked for."""

    name: str
    title: str
    blocks: tuple[Block, ...]
    private: bool = False


@dataclass(frozen=True, slots=True)
class Banner:
    """What a reader must know before any number."""

    tone: Tone
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Headline:
    """The one statement that a report stands for.

    Args:
        guarantee: the smallest certified bound; an approximation if there is none; None if there is nothing at all.
        attack: P(A), the best chance of a right guess whether one unit was in the data; None without a guarantee.
        by: how P(A) was computed.
    """

    guarantee: Guarantee | None
    attack: float | None
    by: str
    promise: str


@dataclass(frozen=True, slots=True)
class Report:
    """Everything on the page, in order."""

    title: str
    subtitle: str
    headline: Headline
    picture: Picture | None
    banners: tuple[Banner, ...]
    sections: tuple[Section, ...]
    guarantees: tuple[Guarantee | Refusal, ...]
    facts: dict[str, Any]
    version: str
    language: str = "en"

    @property
    def private(self) -> bool:
        return any(section.private for section in self.sections)
