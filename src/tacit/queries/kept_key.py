"""Answers that a stop cannot take away: the key of their noise is kept before the charge, and they are drawn from it.

The folder's ``asking.private``, for the owner alone, holds first what is asked for, a fresh key and a digest of the
table under that key. It says nothing about the data, so it may be written before the ledger is charged. The answers are
a function of key and table: who goes on after a stop draws the very same numbers, and nothing is released twice. Then
the file is replaced, whole, by the answers: key and answers, which together would give the exact sums, never lie on the
disk at once. It goes when the run has the answers.
"""

import hashlib
import hmac
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tacit.errors import InputError, TacitError
from tacit.runs import RunFolder
from tacit.storage.files import is_there
from tacit.storage.json_files import read_json, write_json
from tacit.tables import Table
from tacit.types import Floats

if TYPE_CHECKING:
    from tacit.randomness import Randomness

FORMAT = 1
Normals = Callable[[int], Floats]


def keep_key(folder: RunFolder, table: Table, asked: dict[str, Any]) -> None:
    """Before the charge: what is asked for, with a fresh key."""
    key = os.urandom(32)
    _write(folder, {"format": FORMAT, "asked": asked, "key": key.hex(), "table": _digest(key, table)})


def note_charge(folder: RunFolder) -> None:
    """After the charge: who goes on does not pay again. A stop just before this pays twice, never too little."""
    if is_there(folder.asking):
        kept = _read(folder)
        _write(folder, kept | {"asked": kept["asked"] | {"charged": True}})


@contextmanager
def forgotten_if_refused(folder: RunFolder) -> Iterator[None]:
    """While a charge is tried: if it is refused, nothing was asked."""
    try:
        yield
    except TacitError:
        folder.asking.unlink(missing_ok=True)
        raise


def kept_request(folder: RunFolder) -> dict[str, Any]:
    """What was asked for by a run that was stopped before its answers were there."""
    asked = _read(folder).get("asked")
    if not isinstance(asked, dict):
        raise InputError(f"{folder.asking} is damaged; what was charged stays so")
    return asked


def drawn_once(folder: RunFolder, table: Table, source: "Randomness | None", draw: Callable[[Normals], Any]) -> Any:
    """What ``draw`` makes of noise, as JSON: the same after every stop. A source that is given is used as it is."""
    from tacit.randomness import Randomness  # torch comes with it

    if source is not None:
        return draw(lambda count: source.normals(count).numpy())
    kept = _read(folder)
    if "found" in kept:
        return kept["found"]
    key = _key(folder, kept)
    if not hmac.compare_digest(str(kept.get("table")), _digest(key, table)):
        raise InputError("the table is not the one that the answers were paid for; they can be drawn from that alone")
    fresh = Randomness.of_key(key)
    found = draw(lambda count: fresh.normals(count).numpy())
    _write(folder, {"format": FORMAT, "asked": kept.get("asked"), "found": found})
    return found


def _key(folder: RunFolder, kept: dict[str, Any]) -> bytes:
    try:
        key = bytes.fromhex(kept["key"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder.asking} is damaged; what was charged stays so") from error
    return key


def _read(folder: RunFolder) -> dict[str, Any]:
    found = read_json(folder.asking, FORMAT)
    if found is None:
        raise InputError(
            f"{folder.path} was stopped while it asked, and {folder.asking.name} is gone: the answers are lost and "
            "paid for; start again in another folder"
        )
    return dict(found.content)


def _write(folder: RunFolder, content: dict[str, Any]) -> None:
    write_json(folder.asking, content)
    folder.asking.chmod(0o600)


def _digest(key: bytes, table: Table) -> str:
    """Of all cells, under the key, so that it tells nobody else whether a guess at the table is right."""
    found = hmac.new(key, digestmod=hashlib.sha256)
    for name, cells in sorted(table.columns.items()):
        content = cells.tobytes() if cells.dtype.kind == "f" else "\x1f".join(map(str, cells.tolist())).encode()
        for part in (name.encode(), content):
            found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()
