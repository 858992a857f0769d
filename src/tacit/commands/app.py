"""The ``tacit`` command: what all its commands have in common.

Bad input ends with one line on standard error and exit code 2; nothing is written, charged or lost.
"""

import sys
from collections.abc import Sequence

import typer

from tacit import __version__
from tacit.commands import account, audit, calibrate, demo, ledger, predict, release, report, reproduce, schema, train
from tacit.errors import TacitError
from tacit.kernels import status

app = typer.Typer(
    name="tacit",
    help="Private, Bayesian, uncertainty-aware training, and what it cost.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("schema")(schema.schema)
app.command("train")(train.train)
app.command("predict")(predict.predict)
app.command("account")(account.account)
app.command("audit")(audit.audit)
app.command("calibrate")(calibrate.calibrate)
app.command("reproduce")(reproduce.reproduce)
app.command("report")(report.report)
app.command("release")(release.release)
app.add_typer(ledger.app, name="ledger")


def _version(shown: bool) -> None:
    if shown:
        typer.echo(f"tacit {__version__}\n{status()}")
        raise typer.Exit


@app.callback()
def _options(version: bool = typer.Option(False, "--version", callback=_version, is_eager=True)) -> None:
    """Private, Bayesian, uncertainty-aware training, and what it cost."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code: 0, 1 (an audit found a fault), 2 (bad input) or 130."""
    try:
        return int(app(list(arguments), standalone_mode=False) or 0)
    except TacitError as error:
        return _fail(str(error))
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("tacit: interrupted", err=True)
        return 130
    except BrokenPipeError:
        return 1
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error; its class moved between versions of typer
            return _fail(error.format_message())
        raise


def _fail(message: str) -> int:
    typer.echo("tacit: " + " ".join(message.split()), err=True)
    return 2
