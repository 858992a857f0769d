"""How results are printed: one JSON object, or one table that a person reads."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table as Shown
from rich.text import Text

from tacit.accountants import Guarantee, Refusal, attack_probability
from tacit.storage.json_files import finite

if TYPE_CHECKING:
    from tacit.tables import Schema, Table

console = Console(markup=False, emoji=False)  # names and files hold what they like: nothing printed is a command


def say(text: str, *, head: str = "", style: str = "") -> None:
    """A paragraph, as it is; ``head`` is its beginning in bold."""
    console.print(Text.assemble((head, "bold"), (text, style)), soft_wrap=True)


def warn_of_unreadable(table: "Table", schema: "Schema", target: str, whose: str = "") -> None:
    """To the person who holds the table alone, and nowhere kept: the counts follow its records."""
    from tacit.tables.encoding import unreadable_cells

    for name, count in unreadable_cells(table, schema, target).items():
        typer.echo(
            f"tacit: warning: {whose}{count:,} of {len(table):,} cells of the number column {name!r} are no numbers "
            "and count as missing; numbers are written as 1234.5, without a decimal comma or a unit",
            err=True,
        )


def print_json(value: dict[str, Any]) -> None:
    """Plain JSON on standard output; an infinite epsilon becomes null, which every parser reads."""
    typer.echo(json.dumps(finite(value), indent=2))


def guarantee_table(results: Sequence[Guarantee | Refusal], title: str) -> Shown:
    """One row per accountant; a refusal is a row that says why."""
    table = Shown(title=title, title_justify="left", title_style="bold")
    for column in ("accountant", "epsilon", "delta", "notion", "neighbours", "unit", "what it is"):
        table.add_column(column, justify="right" if column in ("epsilon", "delta") else "left")
    for result in results:
        match result:
            case Guarantee():
                table.add_row(
                    result.accountant,
                    f"{result.epsilon:.4f}",
                    f"{result.delta:g}",
                    result.notion,
                    result.neighbours,
                    result.unit,
                    "upper bound" if result.is_bound else "approximation, not a bound",
                )
            case Refusal():
                table.add_row(result.accountant, "refused", "", "", "", "", result.reason)
    return table


def evidence_table(results: Sequence[Guarantee | Refusal], title: str) -> Shown:
    """One row per statement about typical or single records, apart from the worst case, which none of them replaces."""
    table = Shown(title=title, title_justify="left", title_style="bold")
    for column in ("accountant", "whom it is about", "epsilon", "delta", "best guess right"):
        table.add_column(column, justify="left" if column in ("accountant", "whom it is about") else "right")
    for result in results:
        match result:
            case Guarantee():
                whom = "a typical record" if result.percentile is None else f"{result.percentile:.4%} of people"
                guess = f"{attack_probability(result.epsilon, result.delta):.1%}"
                table.add_row(result.accountant, whom, f"{result.epsilon:.4f}", f"{result.delta:g}", guess)
            case Refusal():
                table.add_row(result.accountant, result.reason, "refused", "", "")
    return table


def print_assumptions(results: Sequence[Guarantee | Refusal]) -> None:
    """What the numbers rest on, once each, with the accountant it belongs to if not all of them."""
    given = [result for result in results if isinstance(result, Guarantee)]
    seen: dict[str, list[str]] = {}
    for result in given:
        for assumption in result.assumptions:
            seen.setdefault(assumption, []).append(result.accountant)
    for assumption, owners in seen.items():
        prefix = "" if len(owners) == len(given) else f"{', '.join(owners)}: "
        console.print(f"  - {prefix}{assumption}", style="dim", highlight=False)
