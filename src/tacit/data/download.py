"""Fetching original files once: a size cap, the published digest, and only then a name in the data folder."""

import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tacit.data.archives import check_digest
from tacit.errors import InputError

_SECONDS = 60


def fetch(path: Path, urls: Sequence[str], digest: str, most: int) -> bytes:
    """Get a file from the first of ``urls`` that has it, check it, and keep it at ``path``.

    Args:
        digest: the published sha256, or md5 where only that was published.
        most: what the original is at most long; a server that sends more is cut off.
    """
    reasons = []
    for url in urls:
        try:
            data = _get(url, most)
            check_digest(data, digest, url)
        except (OSError, ValueError) as error:  # the next one may be better
            reasons.append(f"{url}: {error}")
            continue
        _keep(path, data)
        return data
    raise InputError(f"{path.name} could not be fetched; {'; '.join(reasons)}; put it at {path} by hand")


def _get(url: str, most: int) -> bytes:
    if not url.startswith(("http://", "https://")):
        raise InputError("only http and https are used")
    with urllib.request.urlopen(url, timeout=_SECONDS) as answer:  # noqa: S310 (checked above)
        data: bytes = answer.read(most + 1)
    if len(data) > most:
        raise InputError(f"it sends more than the {most:,} bytes of the original")
    return data


def _keep(path: Path, data: bytes) -> None:
    """Whole or not at all: an interrupted download must not look like a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(data)
        os.replace(file.name, path)
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror}; TACIT_DATA must name a folder of yours"
        ) from error
