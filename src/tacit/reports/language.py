"""A page in another language: its sentences, found in one file, and its numbers as they are written there.

A report is a value of words; this maps them, so that nothing that computes a number knows of languages. Sentences stand
in ``languages/<code>.toml`` by their English form, with {0}, {1} for what varies. What is not there stays English:
names, and what others declared.
"""

import re
import tomllib
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeVar

from tacit.reports.content import Banner, Commands, Picture, Report, Section
from tacit.reports.pictures import Series

Language = Literal["en", "de"]
Translator = Callable[[str], str]
Value = TypeVar("Value")

_SENTENCE_END = re.compile(r"(?<=[.?]) (?=[A-Z0-9“])")
_NUMBER = re.compile(r"(?<![\w.,])(\d{1,3}(?:,\d{3})+|\d+)(?:\.(\d+))?(?![\w.]*\w)")
_NOT_WORDS = {Section: {"name"}, Picture: {"name"}, Banner: {"tone"}, Series: {"style", "shape"}, Commands: {"lines"}}


def translate(report: Report, language: Language) -> Report:
    """The same report in this language; what it says as data (guarantees, facts) stays."""
    if language == "en":
        return report
    say = translator(language)
    shown = ("title", "subtitle", "headline", "picture", "banners", "sections")
    return replace(report, language=language, **{name: _translate_texts(getattr(report, name), say) for name in shown})


def translator(language: str) -> Translator:
    """What turns a text into this language."""
    return _as_it_is if language == "en" else lambda text: _write_numbers(_sentences(text, language))


def _as_it_is(text: str) -> str:
    return text


def _translate_texts(value: Value, say: Translator) -> Value:
    """Every text inside, but for names that only the page itself reads."""
    made: Any = value
    if isinstance(value, str):
        made = say(value)
    elif isinstance(value, tuple):
        made = tuple(_translate_texts(item, say) for item in value)
    elif is_dataclass(value) and not isinstance(value, type) and type(value).__module__.startswith("tacit.reports"):
        kept = _NOT_WORDS.get(type(value), set())
        words = [field.name for field in fields(value) if field.name not in kept]
        made = replace(value, **{name: _translate_texts(getattr(value, name), say) for name in words})
    return made  # type: ignore[no-any-return]


def _sentences(text: str, language: str) -> str:
    """Sentence by sentence."""
    return " ".join(_sentence(part, language) or part for part in _SENTENCE_END.split(text))


def _sentence(text: str, language: str) -> str | None:
    exact, patterns = _catalogue(language)
    if text in exact:
        return exact[text]
    for pattern, said in patterns:
        found = pattern.fullmatch(text)
        if found is not None:
            return said.format(*(_sentences(part, language) for part in found.groups()))
    return None


@cache
def _catalogue(language: str) -> tuple[dict[str, str], list[tuple[re.Pattern[str], str]]]:
    """Sentences without anything that varies, and the others, the longest first."""
    text = files("tacit.reports").joinpath(f"languages/{language}.toml").read_text(encoding="utf-8")
    sentences: dict[str, str] = tomllib.loads(text)
    varying = sorted((one for one in sentences if "{0}" in one), key=len, reverse=True)
    exact = {one: said for one, said in sentences.items() if one not in varying}
    return exact, [(re.compile(_pattern(one), re.DOTALL), sentences[one]) for one in varying]


def _pattern(sentence: str) -> str:
    """What begins with something that varies begins with a number: else it would match too much."""
    varies = r"([-\d.,e+]+(?: %)?)" if sentence.startswith("{0}") else "(.+?)"
    return re.sub(r"\\\{\d\\\}", lambda _: varies, re.escape(sentence))


def _write_numbers(text: str) -> str:
    """Decimal commas, and points between thousands; file names, versions and powers of ten stay.

    Example:
        >>> _write_numbers("5,000 of run.json, 55.3 % or 1e-05")
        '5.000 of run.json, 55,3 % or 1e-05'
    """
    return _NUMBER.sub(lambda m: m[1].replace(",", ".") + (f",{m[2]}" if m[2] else ""), text)
