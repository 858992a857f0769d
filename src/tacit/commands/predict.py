"""``tacit predict``: what a trained run says about new records, and how sure it is."""

import csv
import io
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from tacit.commands.output import console, warn_of_unreadable
from tacit.errors import InputError
from tacit.storage.files import write_new_file
from tacit.tables import read_table

_ENDINGS = (".csv", ".tsv", ".parquet", ".npz")


def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    data: Annotated[Path, typer.Argument(help="New records: the columns of the schema; the target is not needed.")],
    out: Annotated[Path, typer.Option(help="Where predictions go: .csv, .tsv, .parquet or .npz.")],
    id_column: Annotated[
        str | None, typer.Option("--id", help="A column of DATA to repeat; by default the one that names the owners.")
    ] = None,
) -> None:
    """Predict: class probabilities, or numbers with intervals, and how much of the doubt is about the weights."""
    from tacit.runs import read_predictor

    if out.suffix.lower() not in _ENDINGS:
        raise InputError(f"--out should end in {', '.join(_ENDINGS)}, found {out.name!r}")
    if not out.parent.is_dir():
        raise InputError(f"--out: the folder {out.parent} does not exist")
    if out.exists() or out.is_symlink():
        raise InputError(f"--out: {out} is there already and is not overwritten; choose another name")
    predictor = read_predictor(run)
    problem = predictor.problem
    table = read_table(data, [name for name in problem.schema.numbers if name != id_column])
    columns = predictor.table(table, id_column)
    write_columns(columns, out)
    warn_of_unreadable(table, problem.schema, problem.target)
    count = len(next(iter(columns.values())))
    console.print(f"{out}: {count:,} predictions of {problem.target!r}", highlight=False, soft_wrap=True)


def write_columns(columns: dict[str, Any], path: Path) -> None:
    """Write equally long columns to a new file, by the ending of its name."""
    file = io.BytesIO()
    match path.suffix.lower():
        case ".npz":
            np.savez(file, **{name: _storable(values) for name, values in columns.items()})
        case ".parquet":
            _write_parquet(columns, file)
        case suffix:
            _write_text(columns, file, "\t" if suffix == ".tsv" else ",")
    write_new_file(path, file.getvalue())


def _write_text(columns: dict[str, Any], file: io.BytesIO, delimiter: str) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow([_not_a_formula(name) for name in columns])
    writer.writerows(zip(*(_cells(values) for values in columns.values()), strict=True))
    file.write(text.getvalue().encode())


def _write_parquet(columns: dict[str, Any], file: io.BytesIO) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise InputError("writing Parquet needs pyarrow; install tacit[tables], or name a .csv") from error
    parquet.write_table(pyarrow.table({name: values.tolist() for name, values in columns.items()}), file)


def _storable(values: Any) -> Any:
    return values.astype(str) if values.dtype == object else values


def _cells(values: Any) -> list[str]:
    return [_not_a_formula(value) if isinstance(value, str) else f"{value:.6g}" for value in values.tolist()]


def _not_a_formula(text: str) -> str:
    """A text that a spreadsheet would run as a formula is marked as text."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
