"""A small private table and the real command line on it: a fifth of a second for a run, once all is imported."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.commands.app import run
from tacit.commands.demo.breast_cancer import write_table
from tacit.tables import Flag, Number, Schema, Table, recipes, schema_text

STEPS = 60  # three blocks
EPSILON = 2.0
TARGETS = ("flag", "number")  # classification, regression


@dataclass(frozen=True, slots=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def fault(self) -> str:
        """What is wrong with how it ended; nothing if it succeeded, or said in one line why not."""
        if self.code == 0:
            return ""
        one_line = self.err.startswith("tacit: ") and self.err.count("\n") == 1
        expected = self.code in (1, 2) and one_line and "(unexpected; " not in self.err and "Traceback" not in self.err
        return "" if expected else f"exit {self.code}: {self.err[-300:]!r}"


def tacit(*arguments: object) -> Said:
    """The command line, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run([str(argument) for argument in arguments])
    return Said(code, out.getvalue(), err.getvalue())


@contextmanager
def short_runs(steps: int = STEPS) -> Iterator[None]:
    """Few steps in place of the recipes' hundreds."""
    before = recipes.STEPS
    recipes.STEPS = dict.fromkeys(before, steps)
    try:
        yield
    finally:
        recipes.STEPS = before


@dataclass(frozen=True, slots=True)
class SmallTable:
    """A folder with a private table, public rows to test on, and one schema for each target."""

    folder: Path

    @classmethod
    def write(cls, folder: Path, rows: int = 120, test_rows: int = 30) -> "SmallTable":
        folder.mkdir(parents=True, exist_ok=True)
        made, chance = cls(folder), np.random.default_rng(0)
        for path, count in ((made.private, rows), (made.test, test_rows)):
            x = chance.uniform(-1, 1, (count, 2))
            cells = {"a": x[:, 0], "b": x[:, 1], "number": 0.5 * x[:, 0] + 0.1 * chance.normal(size=count)}
            cells["flag"] = np.where(x[:, 0] > 0, "yes", "no").astype(object)
            write_table(Table(cells), path)
        numbers = (Number("a", -1, 1), Number("b", -1, 1))
        for target in (Flag("flag"), Number("number", -1, 1)):
            schema = Schema((*numbers, target), dataset="small", records=rows, target=target.name)
            made.schema(target.name).write_text(schema_text(schema))
        return made

    @property
    def private(self) -> Path:
        return self.folder / "private.csv"

    @property
    def test(self) -> Path:
        return self.folder / "test.csv"

    def schema(self, target: str) -> Path:
        return self.folder / f"{target}.toml"

    def train(self, target: str, out: Path, *more: object) -> tuple[object, ...]:
        """The words of ``tacit train`` with everything that it can write."""
        return ("train", self.private, "--schema", self.schema(target), "--epsilon", EPSILON, "--public-test",
                self.test, "--out", out, *more)  # fmt: skip

    def resume(self, out: Path) -> tuple[object, ...]:
        """What a user has at hand after a stop: the table and the folder."""
        return "train", self.private, "--resume", "--out", out


def fault_of_run(out: Path, test: Path, most: float = EPSILON, *used: object) -> str:
    """What keeps a run from being finished, released, verified, accounted for and used; nothing if all is well.

    ``used``: the command that uses it, ``tacit predict`` by default.
    """
    bundle, predictions = out.with_suffix(".bundle"), out.with_suffix(".predictions.csv")
    for words in (
        ("release", out, "--out", bundle),
        ("release", "--check", bundle),
        used or ("predict", out, test, "--out", predictions),
        ("account", out, "--json"),
    ):
        said = tacit(*words)
        if said.code:
            return f"tacit {words[0]}: {said.err}"
    best = min(one["epsilon"] for one in json.loads(said.out)["guarantees"] if one.get("is_bound"))
    if not best <= most:
        return f"it cost epsilon {best}, over {most}"
    return ""


def left_over(out: Path) -> str:
    """What a run that has ended by itself should have taken away."""
    left = [path.name for path in out.iterdir() if "checkpoint" in path.name or path.suffix in (".lock", ".new")]
    return f"{left} are left" if left else ""


def facts_of(out: Path) -> dict[str, Any]:
    """The run's own public facts."""
    facts: dict[str, Any] = json.loads((out / "run.json").read_text())
    return facts
