"""Archives, unpacked without trust: a size cap, only members that are asked for, nothing outside.

Nothing is written while an archive is read: members come back as bytes, so that no name inside it, no link and no
device can reach the disk. Whoever stores them chooses the names.
"""

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from tacit.errors import InputError

_DIGESTS = {32: "md5", 64: "sha256"}  # by length in hex digits; md5 only where nothing else was ever published


def check_digest(data: bytes, digest: str, name: str) -> None:
    """Refuse what is not the published file, before anything looks into it."""
    found = hashlib.new(_DIGESTS[len(digest)], data).hexdigest()
    if found != digest:
        raise InputError(f"{name} is not the original file: its {_DIGESTS[len(digest)]} differs; fetch it again")


def gunzip(data: bytes, most: int, name: str) -> bytes:
    """Unpack a .gz of at most ``most`` bytes of content.

    Example:
        >>> gunzip(gzip.compress(b"hello"), 5, "hello.gz")
        b'hello'
    """
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            unpacked = file.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{name} cannot be unpacked: {error}; fetch it again") from error
    if len(unpacked) > most:
        raise InputError(f"{name} unpacks to more than {most:,} bytes, which it should not; it is not used")
    return unpacked


def untar(data: bytes, members: Mapping[str, int], name: str) -> dict[str, bytes]:
    """The named members of a .tar.gz, each of exactly the size given; everything else in it is left alone.

    A member must be an ordinary file, and there once: a link, a device or a second file of the same name is refused.
    """
    most = 2 * sum(members.values()) + (1 << 20)  # headers and padding, and small files beside
    unpacked = gunzip(data, most, name)
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(unpacked), mode="r:") as archive:
            for entry in archive:
                if entry.name not in members:
                    continue
                if entry.name in found or not entry.isreg() or entry.issparse() or entry.size != members[entry.name]:
                    raise InputError(f"{name}: {entry.name} is not the one ordinary file that it should be")
                content = archive.extractfile(entry)
                found[entry.name] = b"" if content is None else content.read(entry.size)
    except (tarfile.TarError, OSError, EOFError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{name} is not a whole archive: {error}; fetch it again") from error
    for member, size in members.items():
        if len(found.get(member, b"")) != size:
            raise InputError(f"{name} does not hold {member} with its {size:,} bytes; fetch it again")
    return found


def read_at_most(path: Path, most: int) -> bytes:
    """The content of a file that should not be larger than ``most`` bytes."""
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; TACIT_DATA must name the data folder") from error
    if len(data) > most:
        raise InputError(f"{path} is larger than {most:,} bytes, which the original is not")
    return data
