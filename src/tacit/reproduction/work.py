"""What a script gets: where to put things, how much to do, and a place to say what it measured."""

import importlib.metadata
import json
import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from io import BytesIO
from pathlib import Path
from typing import Any

from tacit.reproduction.expectation import Expectation, Item, Verdict
from tacit.storage.files import replace_file

EARLIER = "are of an earlier try"  # ends the note on rows that were kept


@dataclass(frozen=True, slots=True)
class Result:
    """One measured row beside what was expected of it."""

    row: str
    value: float
    expectation: Expectation
    verdict: Verdict

    @property
    def cells(self) -> tuple[str, ...]:
        """Row, paper, ours, difference, what we expect, verdict: as a person reads them."""
        paper = self.expectation.paper
        shown, difference = ("", "") if paper is None else (f"{paper:g}", f"{self.value - paper:+.4g}")
        return self.row, shown, f"{self.value:.4g}", difference, self.expectation.goal, str(self.verdict)

    def to_json(self) -> dict[str, Any]:
        paper = self.expectation.paper
        return {
            "row": self.row,
            "paper": paper,
            "ours": self.value,
            "difference": None if paper is None else self.value - paper,
            "expected": self.expectation.goal,
            "verdict": str(self.verdict),
            "why": self.expectation.why,
        }


@dataclass(slots=True)
class Work:
    """The reproduction of one table or figure.

    Args:
        item: what is made.
        out: a folder of its own: ledgers, evidence, pictures and results are kept there.
        seed: for data splits and initial weights only; privacy noise is always fresh.
        quick: a small part, to see that everything runs.
        only: rows whose names contain one of these words; empty for all.
        resume: keep the rows that an earlier try of the same seed left, and go on with the others.
        on_row: is told of every row as soon as it is measured.
    """

    item: Item
    out: Path
    seed: int = 0
    quick: bool = False
    only: tuple[str, ...] = ()
    resume: bool = False
    on_row: Callable[[str, float], None] | None = None
    notes: list[str] = field(default_factory=list)
    _values: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        path = self.out / "results.json"
        if not (self.resume and path.exists()):
            return
        earlier = json.loads(path.read_text())
        if (earlier["item"], earlier["seed"], earlier["quick"]) == (self.item.key, self.seed, self.quick):
            self._values = {result["row"]: result["ours"] for result in earlier["results"]}
            self.notes = [sentence for sentence in earlier["notes"] if not sentence.endswith(EARLIER)]
            self.note(f"{len(self._values)} rows, the last of {earlier['environment']['date']}, {EARLIER}")

    def lacks(self, *rows: str) -> bool:
        """Whether any of these rows was asked for and is not there yet from an earlier try."""
        return any(self.wants(row) and row not in self._values for row in rows)

    def wants(self, *names: str) -> bool:
        """Whether any of these rows was asked for: scripts ask before long work."""
        return not self.only or any(word.lower() in name.lower() for word in self.only for name in names)

    def measure(self, row: str, value: float) -> None:
        """Say what was measured; kept at once, so that an interrupted script loses nothing."""
        self._values[row] = float(value)
        self.write()
        if self.on_row is not None:
            self.on_row(row, float(value))

    def note(self, sentence: str) -> None:
        """What a reader has to know beside the numbers."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def folder(self, name: str) -> Path:
        """A fresh place for one run: a ledger is never continued by another try."""
        number = 1
        while (place := self.out / (name if number == 1 else f"{name}-{number}")).exists():
            number += 1
        place.mkdir(parents=True)
        return place

    def picture(self, figure: Any, name: str = "figure") -> None:
        """Keep a matplotlib figure."""
        data = BytesIO()
        figure.savefig(data, dpi=150, bbox_inches="tight", format="png")
        replace_file(self.out / f"{name}.png", data.getvalue())

    @property
    def results(self) -> list[Result]:
        return list(self._judged())

    def _judged(self) -> Iterator[Result]:
        for row, value in self._values.items():
            expectation = self.item.rows.get(row, Expectation())
            judged = not self.quick or expectation.quick
            yield Result(row, value, expectation, expectation.judge(value) if judged else Verdict.SHOWN)

    @property
    def missing(self) -> list[str]:
        """Rows that were expected and not measured; a quick run owes only the quick ones."""
        return [
            row
            for row, expected in self.item.rows.items()
            if row not in self._values and self.wants(row) and (expected.quick or not self.quick)
        ]

    def write(self) -> None:
        """Results, settings and environment, for whoever wants to check."""
        content = {
            "item": self.item.key,
            "title": self.item.title,
            "seed": self.seed,
            "quick": self.quick,
            "only": list(self.only),
            "results": [result.to_json() for result in self.results],
            "missing": self.missing,
            "notes": self.notes,
            "environment": environment(),
        }
        replace_file(self.out / "results.json", (json.dumps(content, indent=2) + "\n").encode())


def environment() -> dict[str, Any]:
    """What the numbers were made with."""
    names = ("tacit", "torch", "numpy", "scipy", "scikit-learn")
    versions = {name: importlib.metadata.version(name) for name in names}
    return {"date": str(date.today()), "python": platform.python_version(), "cores": os.cpu_count(), **versions}
