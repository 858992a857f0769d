"""Releases that outlive the process that drew them: each is drawn in parts, and every part is kept before it is used.

A run that is killed may have shown what it drew, so nothing may be drawn a second time under the same charge. That a
part is about to be drawn is noted durably, and then what came of it. Whoever goes on reads back what was kept and draws
the parts that nobody began; a part that was begun and not kept is lost. The release is then the mean of the others,
with the noise that this has: a stop costs some precision, and neither the run nor another charge.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from tacit.errors import InputError, RefusedError
from tacit.regression.newton.plan import PARTS
from tacit.storage.files import read_bytes, replace_file
from tacit.types import Floats

_COUNTS = ": begun, kept"


@dataclass(slots=True)
class Progress:
    """One release: how many of its parts were begun and kept, and the sum of those. Public."""

    begun: int = 0
    kept: int = 0
    total: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(slots=True)
class Releases:
    """All releases of a run so far, by name; in memory alone if there is no ``path``.

    Example:
        >>> found = Releases().mean("a", 1, lambda: np.array([2.0]))
        >>> found.total.tolist(), found.kept
        ([8.0], 4)
    """

    path: Path | None = None
    found: dict[str, Progress] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        """How many parts were begun and not kept."""
        return sum(one.begun - one.kept for one in self.found.values())

    def mean(self, name: str, size: int, draw: Callable[[], Floats]) -> Progress:
        """All parts of a release that can still be had; ``draw`` gives one, exact sum and noise together."""
        one = self.found.setdefault(name, Progress(total=np.zeros(size)))
        if one.total.shape != (size,):
            raise InputError(f"{self.path} holds {one.total.size} numbers of {name!r}, this run has {size}")
        more = one.begun < PARTS
        if more:
            one.begun += 1
            self.write()
        while more:
            one.total, one.kept = one.total + draw(), one.kept + 1
            more = one.begun < PARTS
            one.begun += more  # in the write that keeps the part before it: nothing else happens between the two
            self.write()
        if not one.kept:
            raise RefusedError(
                f"each of the {PARTS} parts of the release {name!r} was lost by a stop, and what was charged is spent: "
                "another try needs a folder and a budget of its own"
            )
        return one

    def write(self) -> None:
        """Keep all of it, whole or not at all."""
        if self.path is not None:
            totals = {name: one.total for name, one in self.found.items()}
            counts = {name + _COUNTS: np.array([one.begun, one.kept]) for name, one in self.found.items()}
            replace_file(self.path, save({**totals, **counts}))


def read_releases(path: Path) -> Releases | None:
    """How far a run came; None where there is no file, so that nothing was drawn, or what was drawn is gone."""
    data = read_bytes(path)
    if data is None:
        return None
    try:
        parts = load(data)
        names = [name for name in parts if not name.endswith(_COUNTS)]
        counts = {name: parts[name + _COUNTS].tolist() for name in names}
        found = {name: Progress(begun, kept, parts[name]) for name, (begun, kept) in counts.items()}
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged: {type(error).__name__} {error}") from error
    for name, one in found.items():
        if not 0 <= one.kept <= one.begun <= PARTS or not np.isfinite(one.total).all():
            raise InputError(f"{path} is damaged: what it says of {name!r} cannot be")
    return Releases(path, found)
