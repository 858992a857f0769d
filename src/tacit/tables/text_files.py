"""Text files as they come: what separates cells, bytes that are no UTF-8, and files that are no text at all.

The separator follows from the line of names alone. A byte that is no UTF-8 is read as Latin-1 by itself. So no record
changes how another one is read.
"""

import codecs
import io
from pathlib import Path

from tacit.errors import InputError

_NOT_TEXT = {b"PK\x03\x04": "a zip or Excel file", b"\x1f\x8b": "a gzip file", b"PAR1": "a Parquet file"}
_SEPARATORS = ",;\t|"
_ONE_BY_ONE = "tacit-latin-1"


def _as_latin_1(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("latin-1"), error.end


codecs.register_error(_ONE_BY_ONE, _as_latin_1)


def open_text(data: bytes) -> io.TextIOWrapper:
    """The lines of what :func:`text_bytes` gives; a byte-order mark is no part of them."""
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig", errors=_ONE_BY_ONE, newline="")


def text_bytes(path: Path) -> bytes:
    """What a text file holds; what is no text is refused by what it seems to be."""
    data = path.read_bytes()
    if data.isspace() or not data:
        raise InputError(f"{path} is empty")
    for start, what in _NOT_TEXT.items():
        if data.startswith(start):
            raise InputError(f"{path} is {what}, not text; save it as CSV or give it its own ending")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") or data[:200].count(0) > 50:
        raise InputError(f"{path} is UTF-16 text; save it as UTF-8")
    if b"\0" in data:
        raise InputError(f"{path} holds zero bytes, so it is not a text file")
    return data


def separator_of(path: Path, data: bytes) -> str:
    """What separates the names in the first line: a tab in a .tsv, else a comma, or what there is instead."""
    with open_text(data) as text:
        names = next((line for line in text if line.strip()), "")
    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    if usual in names:
        return usual
    return max(_SEPARATORS, key=lambda mark: (names.count(mark), mark == usual))


def odd_bytes(data: bytes) -> int:
    """How many bytes of a text file are no UTF-8. Private like the file.

    Example:
        >>> odd_bytes("k\\u00f6ch".encode("latin-1")), odd_bytes("k\\u00f6ch".encode())
        (1, 0)
    """
    found = 0
    while data:
        try:
            data.decode()
            break
        except UnicodeDecodeError as error:
            found += error.end - error.start
            data = data[error.end :]
    return found
