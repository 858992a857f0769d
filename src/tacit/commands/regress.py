"""``tacit regress``: coefficients of a table, with intervals that know the privacy noise."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.commands.output import print_json, say, warn_of_unreadable
from tacit.commands.summary import Contrast, Form, Json, Level, say_regression
from tacit.errors import InputError
from tacit.ledger import RegisteredLedger
from tacit.ledger.registry import read_registry
from tacit.regression.priors import Prior
from tacit.regression.problem import RegressionProblem
from tacit.runs import RunFolder
from tacit.storage.files import is_there
from tacit.storage.json_files import write_json
from tacit.tables import Schema, read_schema, read_table

if TYPE_CHECKING:
    from tacit.regression.regression import Regression


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
    prior: Annotated[str, typer.Option(help="flat, gaussian:SCALE or laplace:SCALE.")] = "flat",
    level: Level = 0.95,
    contrast: Contrast = None,
    delta: Annotated[float | None, typer.Option(help="Below 1/n; by default 1e-5, or less for large tables.")] = None,
    records: Annotated[int | None, typer.Option(help="About how many records there are, if that is public.")] = None,
    registry: Annotated[Path | None, typer.Option(help="The file that runs on this data enter themselves in.")] = None,
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
        _plan(family or "logistic", rows, columns, epsilon, effect, level, as_json=json)
        return
    if data is None or out is None or schema is None or epsilon is None:
        raise InputError("tacit regress needs TABLE, --schema, --outcome, --epsilon and --out (or --plan)")
    folder, chosen, declared = RunFolder(out), Prior.parse(prior), read_schema(schema)
    folder.check_free()
    problem = _problem(declared, outcome, epsilon, delta, family, exposure, interaction or (), records)
    place = _registered(folder, schema, declared, registry)
    found = _run(folder, problem, data, place, chosen, tuple(contrast or ()), level)
    say_regression(found, tuple(contrast or ()), level, form, as_json=json, out=folder.path)


def _problem(
    schema: Schema, outcome: str | None, epsilon: float, delta: float | None, family: str | None, exposure: str | None,
    interactions: Sequence[str], records: int | None,
) -> RegressionProblem:  # fmt: skip
    named = outcome or schema.target
    if named is None:
        raise InputError("which column is to be explained? give --outcome, or target = ... in the schema")
    declared = schema.with_facts(target=named, records=records)
    return RegressionProblem(
        declared, named, epsilon, delta or 0.0, family, exposure, tuple(interactions),  # type: ignore[arg-type]
    )  # fmt: skip


def _registered(folder: RunFolder, path: Path, schema: Schema, registry: Path | None) -> Path | RegisteredLedger:
    if registry is None and schema.registry is not None:
        registry = path.parent / schema.registry
    if registry is None:
        return folder.ledger
    if is_there(registry):
        read_registry(registry)  # another file, or a damaged one, is refused before anything is written
    return RegisteredLedger(folder.ledger, registry)


def _run(
    folder: RunFolder, problem: RegressionProblem, data: Path, ledger: Path | RegisteredLedger, prior: Prior,
    contrasts: tuple[str, ...], level: float,
) -> "Regression":  # fmt: skip
    """Check all that can be checked, then claim the folder, charge and release."""
    from tacit.regression.regression import check_asked, regress
    from tacit.regression.results.saved import declared, save_regression

    check_asked(problem, contrasts, level)
    table = read_table(data, problem.schema.numbers)
    problem.check_table(table)
    problem.rows(table)
    warn_of_unreadable(table, problem.schema, problem.outcome, "for the data holder alone: ")
    with folder.claimed(new=True):
        write_json(folder.facts, declared(problem, prior, contrasts))
        found = regress(problem, table, ledger, prior=prior)
        save_regression(folder, found, contrasts)
    return found


def _plan(
    family: str, rows: int | None, columns: int | None, epsilon: float | None, effect: float, level: float, *,
    as_json: bool,
) -> None:  # fmt: skip
    from tacit.regression.power import WANTED, epsilon_for, expected

    if rows is None or columns is None or epsilon is None:
        raise InputError("--plan needs --rows, --columns and --epsilon")
    now = expected(family, rows, columns, epsilon, effect, level=level)  # type: ignore[arg-type]
    needed = epsilon_for(family, rows, columns, effect, level=level)  # type: ignore[arg-type]
    if as_json:
        asked = {"family": family, "rows": rows, "columns": columns, "effect": effect, "level": level}
        print_json(asked | now.to_json() | {"wanted_power": WANTED, "epsilon_for_wanted_power": needed})
        return
    wide = "cannot be stated" if now.width is None else f"{now.width:.3g} wide (without privacy {now.plain_width:.3g})"
    say(f": {100 * level:g} % intervals {wide}; an effect of {effect:g} is seen with a chance of {now.power:.0%}.",
        head=f"epsilon {epsilon:g}")  # fmt: skip
    seen = "no epsilon up to 12" if needed is None else f"epsilon {needed:.2g}"
    say(f" shows it with a chance of {WANTED:.0%}.", head=seen)
    say("Made-up tables with even covariates; nothing was read and nothing charged.", style="dim")
