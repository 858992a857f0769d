"""``tacit reproduce``: a table or a figure of a paper, made again: the paper's value, ours, and why they differ."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column, Table

from tacit.commands.output import console, print_json
from tacit.errors import InputError
from tacit.reproduction import Item, Verdict, Work, document, find_papers, read_items, reasons


def reproduce(
    item: Annotated[str | None, typer.Argument(help="PAPER/ITEM, such as dp_sgmcmc/figure-1, or PAPER.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show what there is.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Only rows that contain this word; may be repeated.")] = None,
    seed: Annotated[int, typer.Option(help="For splits and initial weights; privacy noise is always fresh.")] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="A small part, to see that it runs.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Keep the rows that an earlier try left in --out.")] = False,
    out: Annotated[Path | None, typer.Option(help="Where ledgers, pictures and results are kept.")] = None,
    papers: Annotated[Path | None, typer.Option(help="The folder of scripts.")] = None,
    table: Annotated[Path | None, typer.Option(help="Print all results below this folder as Markdown.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Make a table or a figure of a paper again; exit code 1 if a row is not as we expect."""
    items = read_items(find_papers(papers))
    if table is not None:
        typer.echo(document(items, table))
        return 0
    if listed or item is None:
        _list(items)
        return 0
    wanted = _find(items, item)
    for one in wanted:
        _check_data(one)
    place = out or Path("runs") / "papers"
    works = []
    for one in wanted:
        folder = place if out is not None and len(wanted) == 1 else place / one.key
        works.append(Work(one, folder, seed, quick, tuple(only or ()), resume, on_row=None if json else _print_row))
        _make(works[-1], quiet=json)
    if json:
        made = [{"item": w.item.key, "results": [row.to_json() for row in w.results], "notes": w.notes} for w in works]
        print_json(made[0] if len(made) == 1 else {"items": made})
    return 1 if any(_is_unexpected(work) for work in works) else 0


def _make(work: Work, *, quiet: bool) -> None:
    if not quiet:
        console.print(f"{work.item.key}: about {work.item.minutes:g} minutes on a free core", style="dim")
    work.write()
    work.item.load()(work)
    work.write()
    if not quiet:
        _print(work)


def _print_row(row: str, value: float) -> None:
    """So that whoever waits for an hour sees what there is."""
    console.print(f"  {row}: {value:.4g}", style="dim", highlight=False)


def _is_unexpected(work: Work) -> bool:
    return bool(work.missing) or any(result.verdict is Verdict.NOT_AS_EXPECTED for result in work.results)


def _find(items: dict[str, Item], asked: str) -> list[Item]:
    """One item, or all of a paper."""
    found = [item for key, item in items.items() if asked in (key, key.split("/")[0])]
    if found:
        return found
    near = [key for key in items if asked in key]
    raise InputError(
        f"there is no {asked!r}; {'did you mean ' + ' or '.join(near[:4]) if near else 'see tacit reproduce --list'}"
    )


def _check_data(item: Item) -> None:
    from tacit.data.files import has_data  # brings torch, which other commands need not wait for

    lacking = [name for name in item.needs if not has_data(name)]
    if lacking:
        raise InputError(f"{item.key} needs {', '.join(lacking)}; let TACIT_DATA name the folder that holds it")


def _list(items: dict[str, Item]) -> None:
    table = Table(Column("item", no_wrap=True), Column("minutes", justify="right"), "what it is", box=None)
    for item in items.values():
        needs = f" (needs {', '.join(item.needs)})" if item.needs else ""
        table.add_row(item.key, f"{item.minutes:g}", f"{item.title}{needs}")
    console.print(table)


def _print(work: Work) -> None:
    table = Table(title=f"{work.item.key}: {work.item.title}", title_justify="left", title_style="bold")
    for column in ("row", "paper", "ours", "difference", "we expect", "verdict"):
        table.add_column(column, justify="right" if column in ("paper", "ours", "difference") else "left")
    for result in work.results:
        table.add_row(*result.cells, style="red" if result.verdict is Verdict.NOT_AS_EXPECTED else None)
    console.print(table)
    for sentence in [*reasons(work.results), *work.notes]:
        console.print(f"  - {sentence}", highlight=False)
    if work.missing:
        console.print(f"not measured: {', '.join(work.missing)}", style="red")
    console.print(f"kept in {work.out}")
