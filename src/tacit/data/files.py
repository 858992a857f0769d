"""Original files from an offline folder, checked against their published digests before anything reads them."""

import hashlib
import os
from pathlib import Path

from tacit.errors import InputError


def data_folder(folder: str | Path | None, name: str) -> Path:
    """The folder ``name`` inside the one given, or inside the one that the environment variable TACIT_DATA names."""
    place = folder if folder is not None else os.environ.get("TACIT_DATA")
    if place is None:
        raise InputError(f"the environment variable TACIT_DATA is not set; it names the folder that holds {name}/")
    return Path(place) / name


def read_original(path: Path, digest: str) -> bytes:
    """The bytes of a file whose sha256 is as published."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; TACIT_DATA must name the data folder") from error
    if hashlib.sha256(data).hexdigest() != digest:
        raise InputError(f"{path} is not the original file: its sha256 differs; fetch it again")
    return data


def has_data(name: str) -> bool:
    """Whether the folder that TACIT_DATA names holds this data set."""
    place = os.environ.get("TACIT_DATA")
    return place is not None and (Path(place) / name).is_dir()
