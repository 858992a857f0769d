"""Original files from an offline folder or their makers, checked against their published digests before use."""

import os
from dataclasses import dataclass
from pathlib import Path

from tacit.data.archives import check_digest, read_at_most
from tacit.data.download import fetch
from tacit.errors import InputError


@dataclass(frozen=True, slots=True)
class Original:
    """A file as its makers published it.

    Args:
        name: inside the folder of its data set.
        digest: sha256, or md5 where only that was published.
        most: how many bytes it may have; nothing longer is read or fetched.
        urls: where it lies, the best first.
    """

    name: str
    digest: str
    most: int = 1 << 26
    urls: tuple[str, ...] = ()

    def read(self, folder: Path, download: bool = False) -> bytes:
        """Its bytes, from the folder, or fetched into it if that is allowed and it is not there."""
        path = folder / self.name
        if download and self.urls and not path.exists():
            return fetch(path, self.urls, self.digest, self.most)
        try:
            data = read_at_most(path, self.most)
        except InputError as error:
            hint = "; download=True fetches it" if self.urls and not path.exists() else ""
            raise InputError(f"{error}{hint}") from error
        check_digest(data, self.digest, str(path))
        return data


def data_folder(folder: str | Path | None, name: str) -> Path:
    """The folder ``name`` inside the one given, or inside the one that the environment variable TACIT_DATA names."""
    place = folder if folder is not None else os.environ.get("TACIT_DATA")
    if place is None:
        raise InputError(f"the environment variable TACIT_DATA is not set; it names the folder that holds {name}/")
    return Path(place) / name


def has_data(name: str) -> bool:
    """Whether the folder that TACIT_DATA names holds this data set."""
    place = os.environ.get("TACIT_DATA")
    return place is not None and (Path(place) / name).is_dir()
