"""The ``tacit`` command: what all its commands have in common.

Every error ends here, in one line on standard error: exit code 2 for bad input, 1 for anything else. ``--debug`` before
the command shows where it came from.
"""

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from itertools import takewhile
from typing import Any, TextIO

import typer
from typer.core import TyperGroup

from tacit import __version__
from tacit.errors import InputError, TacitError

# What each command is for. Its module, of the same name, is loaded on use, so that to list them takes no time.
COMMANDS = {
    "demo": "See it at work on real medical data, in about a minute.",
    "schema": "Draft what is public about a table.",
    "check": "Look for what is odd about a table, for its holder alone.",
    "ask": "Ask a table for counts, means, quantiles and the like.",
    "train": "Train a private model on a table.",
    "tune": "Search for settings on a private table, in one charge.",
    "regress": "Estimate coefficients with intervals that know the privacy noise.",
    "summary": "Print the coefficients of a regression, at any level.",
    "predict": "Predict new records, and say how sure that is.",
    "account": "Say what a run cost, by every accountant.",
    "audit": "Try to break the guarantee.",
    "explain": "Say what an epsilon or a delta means, in words.",
    "calibrate": "Find the noise, steps or sampling for a budget.",
    "reproduce": "Make a table or a figure of a paper again.",
    "report": "Make one page about a run.",
    "release": "Publish a run with its privacy statement, or check one.",
    "ledger": "Look at a ledger, verify it, print its head.",
}


GUIDE = """\
Tacit trains models on sensitive data and says what they know, how sure they are, and what it cost in privacy.

See it at work, in about a minute:
  tacit demo

With a table of your own:
  tacit schema patients.csv --target outcome --out schema.toml    then fill in what is publicly known
  tacit train patients.csv --schema schema.toml --epsilon 1 --out run
  tacit predict run new.csv --out predictions.csv
  tacit report run                                                a page for people who will never run anything

What does a number mean?
  tacit explain epsilon 1

All commands: tacit --help. One of them: tacit train --help. Completion in your shell: tacit --install-completion
"""


class _LazyCommands(TyperGroup):
    """The commands by name, each loaded when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, name: str) -> Any:
        if name not in COMMANDS:
            return None
        module = import_module(f"tacit.commands.{name}")
        if hasattr(module, "app"):
            return typer.main.get_command(module.app)
        alone = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        alone.command(name)(getattr(module, name))
        return typer.main.get_command(alone)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(
    cls=_LazyCommands,
    name="tacit",
    help="Private, Bayesian, uncertainty-aware training, and what it cost.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(shown: bool) -> None:
    if shown:
        from tacit.kernels import status

        typer.echo(f"tacit {__version__}\n{status()}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True),
    debug: bool = typer.Option(False, "--debug", help="Show where an error came from."),
) -> None:
    """Private, Bayesian, uncertainty-aware training, and what it cost."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        _escape_what_cannot_be_encoded(stream)
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code: 0, 1 (an audit found a fault, or an error), 2 (bad input), 130."""
    try:
        if not arguments and "_TACIT_COMPLETE" not in os.environ:
            typer.echo(GUIDE, nl=False)
            return 0
        if any("\0" in argument for argument in arguments):
            raise InputError("an argument holds a zero byte, which no name of a file or column can")
        return int(app(list(arguments), prog_name="tacit", standalone_mode=False) or 0)
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("tacit: interrupted", err=True)
        return 130
    except BrokenPipeError:
        return 1
    except Exception as error:
        if "--debug" in takewhile(lambda word: word.startswith("-"), arguments):
            traceback.print_exc()
        code, message = _exit_code_and_message(error)
        typer.echo("tacit: " + _one_line(message), err=True)
        return code


def _exit_code_and_message(error: Exception) -> tuple[int, str]:
    """The exit code, and what a person can do about it."""
    match error:
        case TacitError():
            return 2, str(error)
        case _ if hasattr(error, "format_message"):  # a usage error; its class moved between versions of typer
            return 2, error.format_message()
        case OSError():
            where = f"{error.filename}: " if error.filename is not None else ""
            return 1, f"{where}{error.strerror or error}"
        case MemoryError():
            return 1, "there is not enough memory for this"
        case _:
            return 1, f"{type(error).__name__}: {error} (unexpected; tacit --debug ... shows where)"


def _one_line(message: str) -> str:
    """Names and files may hold line ends and escape sequences, which a terminal would obey."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in " ".join(message.split()))


def _escape_what_cannot_be_encoded(stream: TextIO) -> None:
    """A name that the terminal's encoding lacks is no reason to end."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
