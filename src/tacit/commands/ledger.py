"""``tacit ledger``: look at a ledger, verify it, print its head. Needs no torch."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tacit.commands.output import console, print_json
from tacit.ledger import PosteriorSample, SamplingEvent, Tuned, event_to_json, read_ledger, verify_ledger

app = typer.Typer(
    help="Look at a ledger, verify it, print its head.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Run = Annotated[Path, typer.Argument(help="A run's folder or a ledger file.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def show(run: Run, json: Json = False) -> None:
    """What was declared and what was charged."""
    ledger = read_ledger(run)
    header = {name: getattr(ledger.header, name) for name in ledger.header.__slots__}
    merged = ledger.merged()
    if json:
        charges = [{"steps": steps, "event": event_to_json(event)} for event, steps in merged.items()]
        print_json({"header": header, "steps": ledger.steps, "charges": charges})
        return
    declared = ", ".join(f"{name} {value}" for name, value in header.items() if value not in (None, ()))
    console.print(f"declared: {declared}", highlight=False)
    table = Table("steps", "sampling", "facts", "clip norm", "noise on the sum", "noise multiplier")
    for event, steps in merged.items():
        for row in _rows(event, str(steps)):
            table.add_row(*row)
    console.print(table)


def _rows(event: SamplingEvent, steps: str) -> Iterator[tuple[str, ...]]:
    """An event in the table's columns; of a search, what one trial takes below it."""
    if isinstance(event, Tuned):
        yield steps, event.kind, ", ".join(f"{name} {value}" for name, value in event_to_json(event)["trials"].items())
        for one, each in event.trial:
            yield from _rows(one, f"a trial: {each}")
        return
    facts = {name: value for name, value in event_to_json(event).items() if name not in ("sampling", "queries")}
    yield (
        steps,
        event.kind,
        ", ".join(f"{name} {value:g}" for name, value in facts.items()),
        ", ".join(f"{query.clip_norm:g}" for query in event.queries),
        ", ".join(f"{query.noise_stddev:g}" for query in event.queries),
        "" if isinstance(event, PosteriorSample) else f"{event.noise_multiplier:.6g}",
    )


@app.command()
def verify(run: Run, json: Json = False) -> None:
    """Check the hash chain and the head; exit code 2 names the first line that is wrong."""
    chain = verify_ledger(run)
    read_ledger(run)  # the records must also make sense
    if json:
        print_json({"ok": True, "records": chain.head.count, "head": chain.head.hash, "torn": chain.torn_bytes})
        return
    torn = f"; {chain.torn_bytes} bytes of an unfinished last line are charged as a block" if chain.torn_bytes else ""
    console.print(f"{chain.head.count} records, chain and head are intact{torn}", highlight=False)


@app.command()
def head(run: Run, json: Json = False) -> None:
    """Print the head (count and hash). Keep it elsewhere: a rollback of all files together is seen only that way."""
    found = verify_ledger(run).head
    if json:
        print_json({"count": found.count, "hash": found.hash})
        return
    console.print(f"{found.count} {found.hash}", highlight=False)
