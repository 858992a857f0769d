"""A private regression: charge the ledger, release, and say what the releases say about the coefficients."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tacit.accountants import Budget, BudgetGate, Guarantee, Refusal, guarantees
from tacit.errors import InputError
from tacit.ledger import Charge, Ledger, LedgerFile, LedgerHeader, ledger_so_far
from tacit.regression.families import FamilyName, Multinomial
from tacit.regression.newton.declared_search import Dropped
from tacit.regression.newton.fit import release_statistics
from tacit.regression.newton.kept import Releases
from tacit.regression.newton.plan import PARTS
from tacit.regression.newton.sums import PrivateSums, Rows
from tacit.regression.posterior import Posterior, posterior_draws
from tacit.regression.priors import Prior, with_prior
from tacit.regression.problem import RegressionProblem
from tacit.regression.results import said
from tacit.regression.results.summary import Coefficient, Draws, contrast, summarise
from tacit.tables import Schema, Table, read_schema, read_table
from tacit.types import Floats

if TYPE_CHECKING:
    from tacit.randomness import Randomness


@dataclass(frozen=True, slots=True)
class Regression:
    """Coefficients, how sure they are, and what they cost. All of it is public.

    Args:
        draws: of the posterior, with the prior.
        doubt: the relative uncertainty of the curvature in its least certain direction.
        convergence: the last step in standard deviations.
        ledger: what was charged; None for a simulation in memory.
        lost: how many parts of releases were lost by stops (newton/kept.py).
        at_bounds: the share of a linear model's outcomes at the declared bounds or beyond.
        dropped: why the declared spread was not used, if it was not: "spread" or "scores" speak against it.
    """

    problem: RegressionProblem
    prior: Prior
    draws: Draws
    doubt: float
    convergence: float
    ledger: Ledger | None = None
    lost: int = 0
    at_bounds: float = 0.0
    dropped: Dropped = ""

    def coefficients(self, level: float = 0.95) -> list[Coefficient]:
        """The table, with credible intervals of this level."""
        return summarise(self.draws, level, ratios=self.problem.is_ratio is not None)

    def contrast(self, text: str, level: float = 0.95) -> list[Coefficient]:
        """The difference between two levels, as in ``drug=yes - drug=no``; post-processing, so it costs nothing."""
        outputs = [""]
        if isinstance(self.problem.family, Multinomial):
            outputs = [f"{name}: " for name in self.problem.levels[1:]]
        found = contrast(self.draws, text, self.problem.design, outputs)
        return summarise(found, level, ratios=self.problem.is_ratio is not None)

    @property
    def guarantees(self) -> list[Guarantee | Refusal]:
        return [] if self.ledger is None else guarantees(self.ledger, self.problem.delta)

    @property
    def warnings(self) -> list[str]:
        """What to know before the numbers are used; all of it follows from released numbers."""
        return said.warnings(self)

    @property
    def assumptions(self) -> list[str]:
        """What intervals rest on besides the model: what was declared of the columns."""
        return said.assumptions(self)


def regress_in_memory(
    problem: RegressionProblem, rows: Rows, normals: Callable[[int], Floats], prior: Prior | None = None,
    kept: Releases | None = None,
) -> Regression:  # fmt: skip
    """The same releases and the same posterior, charged to nobody: for simulations on made-up records."""
    prior, kept = prior or Prior(), Releases() if kept is None else kept
    sums = PrivateSums(rows, problem.reach, problem.plan, normals, kept=kept)
    released = release_statistics(sums, problem.family, problem.spread)
    found = posterior_draws(released)
    draws = _reported(problem, found, prior)
    return Regression(
        problem, prior, draws, found.doubt, found.convergence, lost=kept.lost, at_bounds=released.at_bounds,
        dropped=released.dropped,
    )  # fmt: skip


def _reported(problem: RegressionProblem, found: Posterior, prior: Prior) -> Draws:
    """Draws on the table's own scale."""
    to_names, shift = problem.reported
    values = with_prior(found.draws @ to_names.T + shift, prior, problem.prior_units)
    sampling = to_names @ found.sampling @ to_names.T
    return Draws(problem.names, values, sampling, found.unclear_share(to_names), prior.kind != "flat")


def check_asked(problem: RegressionProblem, contrasts: Sequence[str], level: float) -> None:
    """Refuse a level or a contrast that has no meaning, before anything is charged."""
    count = len(problem.names)
    nothing = Draws(problem.names, np.zeros((2, count)), np.zeros((count, count)), np.zeros(count))
    asked = Regression(problem, Prior(), nothing, 0.0, 0.0)
    for text in contrasts:
        asked.contrast(text, level)
    asked.coefficients(level)


@dataclass(frozen=True, slots=True)
class SharedBudget:
    """Of a ledger that several runs charge: its total, and the name by which this run knows its own charges there."""

    epsilon: float
    run: str


@dataclass(frozen=True, slots=True)
class Charging:
    """What a regression is charged, and where. Public.

    Args:
        ledger: the file, its own or a shared one.
        randomness: the kind of noise, as the ledger names it.
    """

    problem: RegressionProblem
    ledger: str | PathLike[str]
    shared: SharedBudget | None = None
    randomness: Literal["secure", "seeded"] = "secure"

    @property
    def budget(self) -> Budget:
        return Budget(self.problem.epsilon if self.shared is None else self.shared.epsilon, self.problem.delta)

    @property
    def header(self) -> LedgerHeader:
        schema, budget = self.problem.schema, self.budget
        return LedgerHeader(
            unit="user" if self.problem.is_by_person else "record", dataset=schema.dataset,
            dataset_size=self.problem.size, epsilon=budget.epsilon, delta=budget.delta,
            schedule="fixed" if self.shared is None else "adaptive", randomness=self.randomness,
            assumptions=schema.assumptions,
        )  # fmt: skip

    @property
    def charges(self) -> list[Charge]:
        return self.problem.plan.charges(None if self.shared is None else self.shared.run)

    def check(self) -> None:
        """Refuse what the budget cannot pay, before there is a file; of a shared one others may have spent a part."""
        spent = Ledger(self.header) if self.shared is None else ledger_so_far(self.ledger, self.header)
        BudgetGate(self.budget)(spent, self.charges)

    def make(self, kept: Releases | None = None) -> Ledger:
        """Charge all releases of the plan, before a record is touched; what goes on is charged only if it was not.

        ``kept`` are the releases of a run that can be gone on with: where some were begun, no ledger is made anew.
        """
        charges, steps = self.charges, PARTS * len(self.problem.plan.stages)
        with LedgerFile(self.ledger, self.header, create=kept is None or not kept.found) as file:
            if kept is None or not _is_paid(file.ledger, charges):
                BudgetGate(self.budget)(file.ledger, charges)
                if kept is None or self.shared is not None or not file.ledger.planned_steps:
                    file.plan(steps)
                file.reserve(charges)
            return file.ledger


def _is_paid(ledger: Ledger, charges: Sequence[Charge]) -> bool:
    paid = ledger.merged()
    return all(paid[one.event] >= one.steps for one in charges)


def release(
    problem: RegressionProblem, rows: Rows, randomness: "Randomness", prior: Prior | None = None,
    kept: Releases | None = None,
) -> Regression:  # fmt: skip
    """All releases, which have been charged, and what they say; ``kept`` keeps them, and those of earlier processes."""
    return regress_in_memory(problem, rows, lambda count: randomness.normals(count).numpy(), prior, kept)


def regress(
    problem: RegressionProblem,
    table: Table,
    ledger: str | PathLike[str],
    *,
    prior: Prior | None = None,
    randomness: "Randomness | None" = None,
) -> Regression:
    """Charge, release and summarise. A table that does not fit is refused before anything is charged."""
    from tacit.randomness import Randomness  # torch comes with it

    problem.check_table(table)
    rows, source = problem.rows(table), randomness or Randomness()
    charging = Charging(problem, ledger, randomness=source.kind)
    charging.check()
    charged = charging.make()
    return replace(release(problem, rows, source, prior), ledger=charged)


class PrivateRegression:
    """Linear, logistic, Poisson, ordered or multinomial regression with intervals that know the privacy noise.

    Args:
        schema: declared columns, or the path of a schema file.
        outcome: the column to explain.
        epsilon, delta: the budget.
        family: by default from the outcome's kind.
        exposure: a column, for counts.
        interactions: as ``("age:job",)``.
        prior: "flat", "gaussian:SCALE" or "laplace:SCALE".
        assume_spread: declared: the least share of its variance that a weighted sum of the columns keeps
            (:func:`tacit.regression.spread_of`); intervals then rest on it, privacy does not.
        ledger: the file that is charged; a temporary one if left out, so that fits do not add up.
        random_state: for tests only; marks the ledger as seeded.

    Example:
        >>> from tacit.tables import Flag, Number
        >>> chance = np.random.default_rng(0)
        >>> age = chance.uniform(20, 60, size=20_000)
        >>> ill = chance.random(20_000) < 1 / (1 + np.exp(-(age - 40) / 10))
        >>> table = Table({"age": age, "ill": np.where(ill, "yes", "no").astype(object)})
        >>> schema = Schema((Number("age", 20, 60), Flag("ill")), records=20_000)
        >>> found = PrivateRegression(schema, "ill", epsilon=1.0, random_state=0).fit(table)
        >>> [(row.name, round(row.estimate, 1)) for row in found.coefficients()]
        [('(intercept)', -4.1), ('age', 0.1)]
    """

    def __init__(
        self,
        schema: Schema | str | PathLike[str],
        outcome: str,
        *,
        epsilon: float,
        delta: float = 0.0,
        family: FamilyName | None = None,
        exposure: str | None = None,
        interactions: Sequence[str] = (),
        prior: str = "flat",
        assume_spread: float | None = None,
        ledger: str | PathLike[str] | None = None,
        random_state: int | None = None,
    ) -> None:
        declared = schema if isinstance(schema, Schema) else read_schema(Path(schema))
        self.problem = RegressionProblem(
            declared, outcome, epsilon, delta, family, exposure, tuple(interactions), assume_spread=assume_spread
        )  # refuses what does not fit, before any data
        self.prior, self.ledger, self.random_state = Prior.parse(prior), ledger, random_state

    def fit(self, data: Table | str | PathLike[str] | dict[str, Any]) -> Regression:
        """Charge the ledger and fit. ``data`` is a table, a file, a dict of columns or a data frame."""
        from tacit.randomness import Randomness

        source = Randomness() if self.random_state is None else Randomness.seeded(self.random_state)
        with tempfile.TemporaryDirectory() as folder:
            ledger = self.ledger if self.ledger is not None else Path(folder) / "ledger.jsonl"
            return regress(self.problem, _table(data, self.problem), ledger, prior=self.prior, randomness=source)


def _table(data: Any, problem: RegressionProblem) -> Table:
    if isinstance(data, Table):
        return data
    if isinstance(data, str | PathLike):
        return read_table(Path(data), problem.schema.numbers)
    if not hasattr(data, "keys"):
        raise InputError(f"data must be a table, a file or named columns, found {type(data).__name__}")
    return Table({str(name): _cells(data[name]) for name in data.keys()})  # noqa: SIM118 - a data frame has keys too


def _cells(column: Any) -> Any:
    cells = np.asarray(column)
    if cells.dtype.kind in "fiu":
        return cells.astype(np.float64)
    return np.array(["" if cell is None or cell != cell else str(cell) for cell in cells.tolist()], dtype=object)
