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
    ask: Annotated[
        bool, typer.Option("--ask", help="Ask for kinds, bounds and levels privately, for --epsilon.")
    ] = False,
    epsilon: Annotated[float | None, typer.Option(help="With --ask: what it may cost.")] = None,
    delta: Annotated[float | None, typer.Option(help="With --ask: by default 1e-6.")] = None,
    run: Annotated[Path | None, typer.Option(help="With --ask: the folder of the ledger that is charged.")] = None,
) -> None:
    """Draft a schema: the names and types of a table's columns, for a person to fill in what is public about them."""
    if sum((from_values, public is not None, ask)) > 1:
        raise InputError("give one of --from-values, --public and --ask: bounds come from one of them")
    if ask != (epsilon is not None) or ask != (run is not None) or (delta is not None and not ask):
        raise InputError("--ask, --epsilon and --run belong together: as in --ask --epsilon .2 --run asked")
    if out is not None and out.exists():
        raise InputError(f"{out} exists; {_ANY}")
    table = read_table(data)
    if target is not None:
        table.column(target)
    if epsilon is not None and run is not None:
        found = _draft_from_questions(table, data, target, epsilon, delta, run)
    else:
        found = _draft(table, data, from_values, public, target)
    text = schema_text(found)
    if out is None:
        typer.echo(text, nl=False)
        return
    write_new_file(out, text.encode())
    console.print(_what_to_do_next(out, from_values, public, run), highlight=False, soft_wrap=True)


def _draft(table: Table, data: Path, from_values: bool, public: Path | None, target: str | None) -> Schema:
    if public is not None:
        return public_schema(read_table(public), table.names, public, target).with_facts(dataset=data.stem)
    if from_values:
        return schema_from_values(table, data.stem, "taken from the private data", private=True, target=target)
    return draft_schema(table, data.stem).with_facts(target=target)


def _draft_from_questions(
    table: Table, data: Path, target: str | None, epsilon: float, delta: float | None, run: Path
) -> Schema:
    from tacit.queries.drafts import OpenTable, ask_draft
    from tacit.queries.questions import DELTA
    from tacit.runs import RunFolder

    asked = OpenTable(tuple(table.names), epsilon, delta or DELTA, data.stem, target)
    return ask_draft(asked, table, RunFolder(run))


def _what_to_do_next(out: Path, from_values: bool, public: Path | None, run: Path | None = None) -> str:
    if run is not None:
        return f"{out}: asked of the table, and charged to the ledger in {run}. Look at the kinds; ignore ids."
    if from_values:
        return (
            f"{out}: bounds, levels and the number of records come from the data itself. Epsilon does not cover "
            "that, and every statement will say so. Replace them by what is publicly known, then set "
            "derived_from_private_data = false."
        )
    if public is not None:
        return f"{out}: bounds and levels come from {public.name}. Write records = ... (a round number is fine)."
    return (
        f"{out}: names, and kinds guessed from the first rows, which epsilon does not cover: look at each. Fill "
        'in bounds, levels and the number of records from what is publicly known, or write "ask" (docs/tables.md).'
    )
