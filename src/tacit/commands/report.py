"""``tacit report``: one page about a run, for people who will never run it."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from tacit.errors import InputError
from tacit.reports.formats import MARK, Format, render
from tacit.reports.language import Language, translate
from tacit.reports.report import make_report


def report(
    run: Annotated[Path, typer.Argument(help="A run's folder or a ledger file.")],
    form: Annotated[Format, typer.Option("--format", help="A page, data, or text.")] = "html",
    out: Annotated[
        Path | None, typer.Option(help="The file to write; a page goes beside the ledger, others are printed.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="The delta of the statement; the ledger's if left out.")] = None,
    bayesian: Annotated[
        bool, typer.Option("--bayesian", help="Also what the run's private evidence says; not for publication.")
    ] = False,
    language: Annotated[Language, typer.Option(help="Of a page or text; data stays English.")] = "en",
) -> None:
    """Make a report of a run: what it promises, what it cost, how good it is, how to check it."""
    if out is None and form == "html":
        out = (run if run.is_dir() else run.parent) / ("report-private.html" if bayesian else "report.html")
    if out is not None:
        _check_target(out)
    made = make_report(run, delta=delta, bayesian=bayesian)
    text = render(made if form == "json" else translate(made, language), form)
    if out is None:
        typer.echo(text, nl=False)
        return
    _write(out, text, private=bayesian)
    typer.echo(f"wrote {out}" + (", not for publication" if bayesian else ""))


def _check_target(path: Path) -> None:
    """Never write over anything but an earlier report: a wrong name must not cost a ledger."""
    if not path.parent.is_dir():
        raise InputError(f"--out: the folder {path.parent} does not exist")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise InputError(f"--out: {path} is not an ordinary file")
    if path.exists() and MARK.encode() not in path.read_bytes()[:1000]:
        raise InputError(f"--out: {path} is there already and is not a report; choose another name")


def _write(path: Path, text: str, *, private: bool) -> None:
    """At once and whole; what rests on single records is readable by its owner alone, like the evidence."""
    temporary = path.with_name(path.name + ".new")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        temporary.unlink(missing_ok=True)
        with os.fdopen(os.open(temporary, flags, 0o600 if private else 0o644), "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise InputError(f"--out: {path} cannot be written: {error.strerror or error}") from error
