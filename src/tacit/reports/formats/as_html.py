"""A report as one self-contained page: no script, no font, no picture or style from anywhere else.

The page forbids itself everything by a Content-Security-Policy; only its own style sheet is let through, by its hash.
Every text is escaped by the template engine; only our own drawings are not, and they escape what they write.
"""

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from tacit.reports.content import Block, Picture, Report
from tacit.reports.language import translator
from tacit.reports.pictures import (
    Chart,
    Forest,
    People,
    draw_chart,
    draw_forest,
    draw_key,
    draw_people,
    draw_person_key,
)
from tacit.reports.text import in_full, percent_up, round_up
from tacit.storage.names import one_line

if TYPE_CHECKING:
    from jinja2 import Environment


def to_html(report: Report) -> str:
    style = _file("page.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        _environment()
        .from_string(_file("page.html.jinja"))
        .render(report=report, style=style, policy=policy, say=translator(report.language))
    )


@cache
def _file(name: str) -> str:
    return files("tacit.reports.formats").joinpath(name).read_text(encoding="utf-8")


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, StrictUndefined  # a third of a second, for pages alone

    made = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters.update(drawn=_svg_of, key=_key, kind=_kind, line=_line)
    made.filters.update(up=round_up, percent_up=percent_up, small=in_full)
    return made


def _line(text: str) -> str:
    """Foreign or our own, on one line, with no line broken between a number and its percent sign."""
    return re.sub(r"(?<=\d) (?=%)", "\u00a0", one_line(text))


def _kind(block: Block) -> str:
    return type(block).__name__.lower()


def _svg_of(picture: Picture) -> str:
    title, description = _line(picture.title), _line(picture.description)
    match picture.drawing:
        case People() as people:
            return draw_people(people, picture.name, title, description)
        case Forest() as forest:
            return draw_forest(forest, picture.name, title, description)
        case Chart() as chart:
            return draw_chart(chart, picture.name, title, description)


def _key(picture: Picture) -> list[tuple[str, str]]:
    """The samples of a picture's key with their meanings."""
    match picture.drawing:
        case People(key=key):
            return [(draw_person_key(kind), text) for kind, text in key]
        case Forest():
            return []
        case Chart(series=series):
            return [(draw_key(item), item.name) for item in series if item.x]
