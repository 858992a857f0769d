"""A file that says its own sha256, so that a changed bit anywhere in it is found when it is read."""

import hashlib
import re

from tacit.errors import InputError

NAME = "tacit_sha256"
UNKNOWN = "0" * 64
_PLACE = re.compile(f'{NAME}":"([0-9a-f]{{64}})"'.encode())


def with_digest(data: bytes) -> bytes:
    """The same bytes with the digest in its place, which holds zeros so far.

    Example:
        >>> check_digest(with_digest(b'{"tacit_sha256":"' + b"0" * 64 + b'"}'))
    """
    place = _PLACE.search(data)
    assert place is not None  # a file without a place for it
    return data[: place.start(1)] + hashlib.sha256(data).hexdigest().encode() + data[place.end(1) :]


def check_digest(data: bytes) -> None:
    """Refuse a file whose content is not what it was written with."""
    place = _PLACE.search(data)
    if place is None:
        raise InputError("it does not say its sha256")
    blank = data[: place.start(1)] + UNKNOWN.encode() + data[place.end(1) :]
    if hashlib.sha256(blank).hexdigest().encode() != place[1]:
        raise InputError("its content was changed: its sha256 differs")
