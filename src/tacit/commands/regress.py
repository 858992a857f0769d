"""``tacit regress``: coefficients of a table, with intervals that know the privacy noise."""

import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.commands.continued import check_unchanged
from tacit.commands.output import print_json, say, warn_of_unreadable
from tacit.commands.summary import Contrast, Form, Json, Level, say_regression
from tacit.errors import InputError
from tacit.regression.priors import Prior
from tacit.regression.problem import RegressionProblem
from tacit.runs import RunFolder
from tacit.runs.shared_budget import registry_name, shared_total
from tacit.tables import read_schema, read_table

if TYPE_CHECKING:
    from tacit.regression.regression import Regression
    from tacit.regression.results.saved import RegressionFacts


def regress(
    data: Annotated[Path | None, typer.Argument(help="The private table.", show_default=False)] = None,
    outcome: Annotated[
        str | None, typer.Option(help="The column to explain; may stand in the schema as target.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="The privacy budget.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder: ledger, coefficients and facts.")] = None,
    schema: Annotated[Path | None, typer.Option(help="What is public about the table; tacit schema drafts it.")] = None,
    family: Annotated[
        str | None, typer.Option(help="linear, logistic, poisson, multinomial or ordered; else by the outcome's kind.")
    ] = None,
    exposure: Annotated[str | None, typer.Option(help="Time or people at risk, for counts.")] = None,
    interaction: Annotated[list[str] | None, typer.Option(help="Two columns as a:b; may be repeated.")] = None,
    prior: Annotated[
        str | None, typer.Option(help="flat (default), gaussian:SCALE or laplace:SCALE.", show_default=False)
    ] = None,
    assume_spread: Annotated[
        float | None,
        typer.Option(help="Declared: the least share of its variance that a weighted sum of columns keeps."),
    ] = None,
    level: Level = 0.95,
    contrast: Contrast = None,
    delta: Annotated[float | None, typer.Option(help="Below 1/n; by default 1e-5, or less for large tables.")] = None,
    records: Annotated[
        int | None, typer.Option(help="About how many records (or owners of rows) there are, if public.")
    ] = None,
    budget: Annotated[Path | None, typer.Option(help="A ledger that several runs share.")] = None,
    budget_epsilon: Annotated[
        float | None, typer.Option(help="The total of --budget, given when it is opened.")
    ] = None,
    registry: Annotated[Path | None, typer.Option(help="The file that runs on this data enter themselves in.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was interrupted.")] = False,
    form: Form = "text",
    plan: Annotated[
        bool, typer.Option("--plan", help="Spend nothing: what would --rows, --columns, --effect show?")
    ] = False,
    rows: Annotated[int | None, typer.Option(help="With --plan: the number of records.")] = None,
    columns: Annotated[int | None, typer.Option(help="With --plan: the number of covariates.")] = None,
    effect: Annotated[float, typer.Option(help="With --plan: of half a covariate's range.")] = 0.5,
    json: Json = False,
) -> None:
    """Regress an outcome on the declared columns: estimates, intervals that know the privacy noise, and the cost."""
    if plan:
        _plan(family or "logistic", rows, columns, epsilon, effect, level, assume_spread, as_json=json)
        return
    if data is None or out is None:
        raise InputError("tacit regress needs TABLE, --schema, --outcome, --epsilon and --out (or --plan)")
    folder = RunFolder(out)
    asked = Request(outcome, epsilon, delta, family, exposure, tuple(interaction or ()), prior, tuple(contrast or ()),
                    records, None if registry is None else folder.name_of(registry), budget,
                    budget_epsilon, assume_spread)  # fmt: skip
    facts = asked.interrupted_run(folder) if resume else asked.new_run(folder, schema)
    found = _run(facts, data, folder, level, resume=resume)
    say_regression(found, facts.contrasts, level, form, as_json=json, out=folder.path)


@dataclass(frozen=True, slots=True)
class Request:
    """The options of the command line that a schema or a run's folder may answer too."""

    outcome: str | None
    epsilon: float | None
    delta: float | None
    family: str | None
    exposure: str | None
    interactions: tuple[str, ...]
    prior: str | None
    contrasts: tuple[str, ...]
    records: int | None
    registry: str | None
    budget: Path | None
    budget_epsilon: float | None
    assume_spread: float | None = None

    def new_run(self, folder: RunFolder, path: Path | None) -> "RegressionFacts":
        """All public facts of the run, refused here if they do not fit together."""
        from tacit.regression.regression import SharedBudget
        from tacit.regression.results.saved import RegressionFacts

        if path is None or self.epsilon is None:
            raise InputError("tacit regress needs TABLE, --schema, --outcome, --epsilon and --out (or --plan)")
        prior, schema = Prior.parse(self.prior or "flat"), read_schema(path)
        folder.check_free()
        named = self.outcome or schema.target
        if named is None:
            raise InputError("which column is to be explained? give --outcome, or target = ... in the schema")
        total = shared_total(self.budget, self.budget_epsilon, self.epsilon)
        counted = {"records" if schema.unit == "record" else "users": self.records}
        declared = replace(schema.with_facts(target=named, **counted), registry=None)
        problem = RegressionProblem(
            declared, named, self.epsilon, self.delta or 0.0, self.family, self.exposure,  # type: ignore[arg-type]
            self.interactions, total is not None, self.assume_spread,
        )  # fmt: skip
        registry = registry_name(self.registry, schema, path, folder)
        shared = None if total is None else SharedBudget(total, secrets.token_hex(6))
        return RegressionFacts(problem, prior, self.contrasts, registry, self._ledger(folder), shared)

    def _ledger(self, folder: RunFolder) -> str | None:
        return None if self.budget is None else folder.name_of(self.budget)

    def interrupted_run(self, folder: RunFolder) -> "RegressionFacts":
        """The facts of an interrupted run. Options may be repeated, but not changed."""
        from tacit.regression.results.saved import read_facts

        facts = read_facts(folder)
        folder.check_unfinished()
        problem, prior = facts.problem, self.prior and str(Prior.parse(self.prior))
        known = {"outcome": problem.outcome, "epsilon": problem.epsilon, "delta": problem.delta,
                 "family": problem.family.name, "exposure": problem.exposure, "interaction": problem.interactions,
                 "prior": str(facts.prior), "contrast": facts.contrasts, "records": problem.size,
                 "registry": facts.registry, "budget": facts.shared_ledger,
                 "budget-epsilon": None if facts.shared is None else facts.shared.epsilon,
                 "assume-spread": problem.assume_spread}  # fmt: skip
        asked = {"interaction": self.interactions or None, "contrast": self.contrasts or None, "prior": prior,
                 "budget": self._ledger(folder), "budget-epsilon": self.budget_epsilon,
                 "assume-spread": self.assume_spread}  # fmt: skip
        check_unchanged(known, asdict(self) | asked)
        return facts


def _run(facts: "RegressionFacts", data: Path, folder: RunFolder, level: float, *, resume: bool) -> "Regression":
    """Check what was asked, then claim the folder, charge and release."""
    from tacit.regression.regression import check_asked
    from tacit.regression.whole_run import run_regression

    problem = facts.problem
    check_asked(problem, facts.contrasts, level)
    table = read_table(data, problem.schema.numbers)
    problem.check_table(table)
    warn_of_unreadable(table, problem.schema, problem.outcome, "for the data holder alone: ")
    try:
        return run_regression(facts, table, folder, resume=resume)
    except KeyboardInterrupt:
        go_on = f"tacit regress {data} --resume --out {folder.path}"
        typer.echo(f"tacit: stopped; what was paid for is kept. Go on with: {go_on}", err=True)
        raise


def _plan(
    family: str, rows: int | None, columns: int | None, epsilon: float | None, effect: float, level: float,
    spread: float | None, *, as_json: bool,
) -> None:  # fmt: skip
    from tacit.regression.power import WANTED, epsilon_for, expected

    if rows is None or columns is None or epsilon is None:
        raise InputError("--plan needs --rows, --columns and --epsilon")
    now = expected(family, rows, columns, epsilon, effect, level=level, spread=spread)  # type: ignore[arg-type]
    needed = epsilon_for(family, rows, columns, effect, level=level, spread=spread)  # type: ignore[arg-type]
    if as_json:
        asked = {"family": family, "rows": rows, "columns": columns, "effect": effect, "level": level}
        print_json(asked | now.to_json() | {"wanted_power": WANTED, "epsilon_for_wanted_power": needed})
        return
    wide = "cannot be stated" if now.width is None else f"{now.width:.3g} wide (without privacy {now.plain_width:.3g})"
    say(f": {100 * level:g} % intervals {wide}; an effect of {effect:g} is seen with a chance of {now.power:.0%}.",
        head=f"epsilon {epsilon:g}")  # fmt: skip
    seen = "no epsilon up to 12" if needed is None else f"about epsilon {needed:.2g}"
    say(f" shows it with a chance of {WANTED:.0%}.", head=seen)
    say("Made-up tables with even covariates; nothing was read and nothing charged.", style="dim")
