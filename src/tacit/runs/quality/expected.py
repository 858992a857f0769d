"""How good a private classifier may become, before a record is read: the defaults tried out on made-up tables.

A made-up table has the declared columns, spread evenly over their bounds and levels, and as many records as declared.
Its classes follow from a linear model, made so clear that the best classifier would be right as often as is assumed.
What the private one reaches on such tables follows from public numbers alone; real columns that are uneven, or depend
on each other, can do better or worse.
"""

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from tacit.accountants.search import root
from tacit.errors import InputError, check_inside
from tacit.randomness import Randomness
from tacit.runs.facts import RunFacts
from tacit.runs.folder import RunFolder
from tacit.runs.problem import Problem
from tacit.runs.whole_run import train_table
from tacit.tables import Category, Encoded, Flag, Number, Table, encode_inputs
from tacit.types import Floats

_TEST = 20_000  # made-up records to score on


@dataclass(frozen=True, slots=True)
class Expected:
    """What to expect at one epsilon: the mean share of right answers over made-up tables, and how much it varies."""

    epsilon: float
    accuracy: float
    spread: float


def expected_accuracy(problem: Problem, epsilons: Sequence[float], best: float, tables: int = 3) -> list[Expected]:
    """The accuracy of the problem's defaults at each epsilon, where the best classifier would reach ``best``.

    Example:
        >>> from tacit.tables import Schema
        >>> schema = Schema((Number("age", 0, 100), Flag("ill")), records=2000)
        >>> found = expected_accuracy(Problem(schema, "ill", 1.0, 1e-5), (1.0,), best=0.8, tables=1)
        >>> 0.75 < found[0].accuracy < 0.82
        True
    """
    check_inside("best", best)
    if problem.classes is None:
        raise InputError("--plan says how often classes would be right; for numbers, tacit regress --plan")
    if best <= 1 / len(problem.classes):
        raise InputError(f"--best must be above {1 / len(problem.classes):.2f}, which guessing reaches")
    alike = replace(problem.schema, unit="record", records=problem.schema.units, sample_weight=None, class_weight={})
    found = []
    for epsilon in epsilons:
        plan = replace(problem, schema=alike, epsilon=epsilon, search=None, hold_out=0.0)
        scores = [_accuracy(plan, best, seed) for seed in range(tables)]
        found.append(Expected(epsilon, float(np.mean(scores)), float(np.std(scores))))
    return found


def _accuracy(problem: Problem, best: float, seed: int) -> float:
    chance = np.random.default_rng(seed)
    inputs = encode_inputs(_made_up_table(problem, problem.units + _TEST, chance), problem.schema, problem.target)
    classes = len(problem.classes or ())
    scores = inputs @ chance.normal(size=(inputs.shape[1], classes))
    scores -= scores.mean(0)  # no class is frequent by itself
    clear = softmax(_clearness(scores[:_TEST], best) * scores, axis=1)
    targets = (clear.cumsum(1) < chance.random(len(clear))[:, None]).sum(1).clip(max=classes - 1).astype(np.int64)
    data = Encoded(inputs[_TEST:], targets[_TEST:], None, np.arange(problem.units))
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder(Path(place) / "run")
        trained = train_table(RunFacts(problem), data, folder, checkpoints=False, randomness=Randomness.seeded(seed))
    said = trained.predictor.classes(inputs[:_TEST]).mean.numpy().argmax(1)
    return float(clear[np.arange(_TEST), said].mean())  # how often that is right


def _clearness(scores: Floats, best: float) -> float:
    """The factor with which the best guess is right as often as is asked for."""

    def missing(log_factor: float) -> float:
        return best - float(softmax(math.exp(log_factor) * scores, axis=1).max(1).mean())

    low, high = math.log(1e-9), math.log(1e6)
    if missing(low) <= 0 or missing(high) > 0:
        return math.exp(low if missing(low) <= 0 else high)
    return math.exp(root(missing, low, high))


def _made_up_table(problem: Problem, rows: int, chance: np.random.Generator) -> Table:
    return Table({column.name: _cells(column, rows, chance) for column in problem.schema.features(problem.target)})


def _cells(column: Number | Category | Flag, rows: int, chance: np.random.Generator) -> Any:
    match column:
        case Category(levels=levels):
            return np.array(levels, dtype=object)[chance.integers(len(levels), size=rows)]
        case Flag(yes=yes, no=no):
            return np.array([no[0], yes[0]], dtype=object)[chance.integers(2, size=rows)]
        case Number(low=low, high=high, bins=bins):
            first, last = (low, high) if low is not None and high is not None else (bins[0] - 1, bins[-1] + 1)
            return chance.uniform(first, last, rows)
