"""Features kept on disk: computed once, found again by what they were computed from.

They are a fixed function of private records, so they are as private as the records: the folder and its files are
readable by their owner alone. A cache is not a release, and nothing of it belongs beside a ledger.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from tacit.errors import InputError

_NAME = "features"


def feature_folder() -> Path:
    """``TACIT_CACHE``, or ``tacit/features`` in the user's cache folder."""
    base = os.environ.get("TACIT_CACHE")
    if base is not None:
        return Path(base)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tacit" / "features"


def cached_features(
    images: Tensor, transform: str, compute: Callable[[Tensor], Tensor], folder: str | Path | None = None
) -> Tensor:
    """``compute(images)``, or what an earlier call with the same pictures and the same ``transform`` has kept.

    Args:
        transform: names the computation with all its settings; a changed computation needs another name.
        folder: private; by default :func:`feature_folder`.
    """
    place = Path(folder) if folder is not None else feature_folder()
    path = place / f"{feature_key(images, transform)}.safetensors"
    if path.exists():
        return _read(path)
    found = compute(images).contiguous()
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.new")
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600))
    save_file({_NAME: found}, temporary, {"transform": transform, "private": "yes: made of single records"})
    os.chmod(temporary, 0o600)
    os.replace(temporary, path)
    return found


def feature_key(images: Tensor, transform: str) -> str:
    """sha256 of the transform, the shape and the bytes of the pictures."""
    digest = hashlib.sha256(f"{transform}|{images.dtype}|{list(images.shape)}|".encode())
    digest.update(images.contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read(path: Path) -> Tensor:
    try:
        return load_file(path)[_NAME]
    except (OSError, SafetensorError, KeyError) as error:
        raise InputError(f"{path} does not hold features: {error}; remove it") from error
