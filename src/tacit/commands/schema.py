"""``tacit schema``: a first draft of what has to be declared about a table. Needs no torch."""

from pathlib import Path
from typing import Annotated

import typer

from tacit.commands.output import console
from tacit.errors import InputError
from tacit.storage.files import write_new_file
from tacit.tables import Schema, Table, draft_schema, public_schema, read_table, schema_from_values, schema_text

_ANY = "a schema file that exists already is never overwritten"


def schema(
    data: Annotated[Path, typer.Argument(help="The table: .csv, .tsv, .parquet or .npz.")],
    out: Annotated[Path | None, typer.Option(help="Where the schema goes; left out, it is printed.")] = None,
    from_values: Annotated[
        bool, typer.Option("--from-values", help="Take bounds and levels from DATA itself. Not private; marked so.")
    ] = False,
    public: Annotated[Path | None, typer.Option(help="Take bounds and levels from this public sample.")] = None,
    target: Annotated[str | None, typer.Option(help="The column to predict.")] = None,
) -> None:
    """Draft a schema: the names and types of a table's columns, for a person to fill in what is public about them."""
    if from_values and public is not None:
        raise InputError("give either --from-values or --public: bounds come from one of them")
    if out is not None and out.exists():
        raise InputError(f"{out} exists; {_ANY}")
    table = read_table(data)
    if target is not None:
        table.column(target)
    text = schema_text(_draft(table, data, from_values, public, target))
    if out is None:
        typer.echo(text, nl=False)
        return
    write_new_file(out, text.encode())
    console.print(_next(out, from_values, public), highlight=False, soft_wrap=True)


def _draft(table: Table, data: Path, from_values: bool, public: Path | None, target: str | None) -> Schema:
    if public is not None:
        return public_schema(read_table(public), table.names, public, target).with_facts(dataset=data.stem)
    if from_values:
        return schema_from_values(table, data.stem, "taken from the private data", private=True, target=target)
    return draft_schema(table, data.stem).with_facts(target=target)


def _next(out: Path, from_values: bool, public: Path | None) -> str:
    if from_values:
        return (
            f"{out}: bounds, levels and the number of records come from the data itself. Epsilon does not cover "
            "that, and every statement will say so. Replace them by what is publicly known, then set "
            "derived_from_private_data = false."
        )
    if public is not None:
        return f"{out}: bounds and levels come from {public.name}. Write records = ... (a round number is fine)."
    return f"{out}: names and types. Now fill in bounds, levels and the number of records from what is publicly known."
