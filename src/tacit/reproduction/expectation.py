"""What is expected of a table or a figure: the paper's value, ours, the tolerance, and why the two differ.

``papers/<paper>/expected.json`` holds it, beside the scripts; nothing of it is known to a script, so that no script can
print what it should have measured.
"""

import importlib.util
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import InputError

if TYPE_CHECKING:
    from tacit.reproduction.work import Work


class Verdict(StrEnum):
    """How a measured value stands to the paper's and to ours. Where the paper gives no value: as expected, or shown."""

    REPRODUCED = "reproduced"
    DIFFERS = "differs, as expected"
    AS_EXPECTED = "as expected"
    NOT_AS_EXPECTED = "NOT AS EXPECTED"
    SHOWN = "shown"


@dataclass(frozen=True, slots=True)
class Expectation:
    """One row.

    Args:
        paper: the paper's value; None where it gives none (a curve without numbers, a comparison of our own).
        expected: the value we expect; with ``tolerance`` on both sides.
        at_least, at_most: a goal instead of a value; both may be given.
        paper_tolerance: how near the paper's value counts as reproduced (by default ``tolerance``).
        why: the reason where ours and the paper's differ.
        quick: whether the row also holds in a quick run.
    """

    paper: float | None = None
    expected: float | None = None
    tolerance: float = 0.0
    at_least: float | None = None
    at_most: float | None = None
    paper_tolerance: float | None = None
    why: str = ""
    quick: bool = False

    def judge(self, value: float) -> Verdict:
        """Whether a measured value is what we expect, and whether it is the paper's."""
        if not self.holds(value):
            return Verdict.NOT_AS_EXPECTED
        if self.paper is None:
            return Verdict.SHOWN if self._is_open else Verdict.AS_EXPECTED
        near = self.tolerance if self.paper_tolerance is None else self.paper_tolerance
        return Verdict.REPRODUCED if abs(value - self.paper) <= near else Verdict.DIFFERS

    def holds(self, value: float) -> bool:
        if value != value:  # a NaN is never what was expected
            return False
        within = self.expected is None or abs(value - self.expected) <= self.tolerance
        return within and value >= _or(self.at_least, value) and value <= _or(self.at_most, value)

    @property
    def goal(self) -> str:
        """What we expect, in a few characters."""
        parts = [] if self.expected is None else [f"{self.expected:g} ± {self.tolerance:g}"]
        parts += [] if self.at_least is None else [f">= {self.at_least:g}"]
        parts += [] if self.at_most is None else [f"<= {self.at_most:g}"]
        return ", ".join(parts)

    @property
    def _is_open(self) -> bool:
        return self.expected is None and self.at_least is None and self.at_most is None


def _or(limit: float | None, value: float) -> float:
    return value if limit is None else limit


@dataclass(frozen=True, slots=True)
class Item:
    """A table or a figure of a paper, and the script that makes it."""

    paper: str
    name: str
    title: str
    script: Path
    minutes: float
    needs: tuple[str, ...] = ()
    rows: Mapping[str, Expectation] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.paper}/{self.name}"

    def load(self) -> "Callable[[Work], None]":
        """The script's function ``reproduce(work)``."""
        paper = self.script.parent  # scripts of one paper share modules, and may borrow another paper's: dp_bnn.mnist
        sys.path[:0] = [str(paper), str(paper.parent)]
        spec = importlib.util.spec_from_file_location(f"papers.{self.paper}.{self.script.stem}", self.script)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found: Callable[[Work], None] = module.reproduce
        return found


def find_papers(folder: Path | None = None) -> Path:
    """The folder of scripts: the one given, or the one beside this file, which the installed package has too."""
    place = Path(__file__).parent / "papers" if folder is None else folder
    if not any(place.glob("*/expected.json")):
        raise InputError(f"no scripts of papers in {place}: each paper is a folder with expected.json and its scripts")
    return place


def read_items(folder: Path) -> dict[str, Item]:
    """Every table and figure, by its key such as ``bayesian_dp/table-1``."""
    items = [item for path in sorted(folder.glob("*/expected.json")) for item in _read(path)]
    return {item.key: item for item in items}


def _read(path: Path) -> list[Item]:
    try:
        content = json.loads(path.read_text())
        return [_item(path, name, facts) for name, facts in content.items()]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path} does not say what is expected: {error}") from error


def _item(path: Path, name: str, facts: dict[str, Any]) -> Item:
    rows = {row: Expectation(**expected) for row, expected in facts["rows"].items()}
    script = path.parent / f"{name.replace('-', '_')}.py"
    needs = tuple(facts.get("needs", ()))
    return Item(path.parent.name, name, facts["title"], script, facts["minutes"], needs, rows)
