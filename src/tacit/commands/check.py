"""``tacit check``: what is odd about a table, for its holder alone. Needs no torch."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table as Shown

from tacit.commands.output import console, print_json, say
from tacit.tables import draft_schema, read_schema, read_table
from tacit.tables.checks import OddThing, check_file, check_table, shared_rows

_MARK = "For the data holder alone: these lines follow the private records and are covered by no epsilon."


def check(
    data: Annotated[Path, typer.Argument(help="The table: .csv, .tsv, .parquet or .npz.")],
    schema: Annotated[Path | None, typer.Option(help="What was declared; left out, types are guessed.")] = None,
    target: Annotated[str | None, typer.Option(help="The column to predict; may stand in the schema.")] = None,
    public_test: Annotated[Path | None, typer.Option(help="Test data: counts the rows that both hold.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Look for what would go wrong unseen: unreadable cells, codes for missing, undeclared levels, copies."""
    table = read_table(data)
    declared = draft_schema(table, data.stem) if schema is None else read_schema(schema)
    target = target or declared.target
    if target is not None:
        declared.column(target)
    found = [*check_file(data), *check_table(table, declared, target)]
    if public_test is not None:
        both = shared_rows(table, read_table(public_test))
        found += [OddThing("", f"rows of {public_test.name} are in the table too", both)] if both else []
    if json:
        print_json({"private": _MARK, "rows": len(table), "found": [one.to_json() for one in found]})
        return
    say(f" {_MARK}", head="PRIVATE", style="dim")
    if not found:
        say(f"{data}: {len(table):,} rows, nothing odd")
        return
    _print(found, data, len(table))


def _print(found: list[OddThing], data: Path, rows: int) -> None:
    shown = Shown(title=f"{data}, {rows:,} rows", title_justify="left", title_style="bold")
    for name in ("column", "how many", "what", "schema line"):
        shown.add_column(name, justify="right" if name == "how many" else "left")
    for one in found:
        shown.add_row(one.column, f"{one.count:,}", one.what, one.schema_line)
    console.print(shown)
