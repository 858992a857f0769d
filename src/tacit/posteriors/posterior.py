"""A posterior is something that yields parameters. It is made of released numbers, so it may be kept and shared."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from tacit.errors import InputError, check_count
from tacit.storage.files import replace_file
from tacit.types import Vectors


class Posterior(Protocol):
    def __len__(self) -> int:
        """How many draws it yields."""

    def __iter__(self) -> Iterator[Vectors]:
        """The draws, one at a time."""

    def save(self, path: str | Path) -> None: ...


@dataclass(frozen=True, slots=True)
class Draws:
    """Draws from a sampler, stacked: each vector has a leading dimension of draws, one chain after the other."""

    vectors: Vectors
    chains: int = 1

    def __post_init__(self) -> None:
        check_count("chains", self.chains)
        if not self.vectors or not all(isinstance(value, Tensor) and value.dim() for value in self.vectors.values()):
            raise InputError("vectors must hold stacked tensors by name, found none or something else")
        if len(self) % self.chains:
            raise InputError(f"{len(self)} draws cannot be {self.chains} chains of equal length")

    @classmethod
    def of(cls, draws: Sequence[Mapping[str, Tensor]], chains: int = 1) -> "Draws":
        if not draws:
            raise InputError("a posterior needs at least one draw, found none")
        return cls({name: torch.stack([draw[name] for draw in draws]) for name in draws[0]}, chains)

    @property
    def by_chain(self) -> Vectors:
        """The vectors with two leading dimensions, chains and draws."""
        each = len(self) // self.chains
        return {name: value.reshape(self.chains, each, *value.shape[1:]) for name, value in self.vectors.items()}

    def __len__(self) -> int:
        return len(next(iter(self.vectors.values())))

    def __iter__(self) -> Iterator[Vectors]:
        for index in range(len(self)):
            yield {name: value[index] for name, value in self.vectors.items()}

    def save(self, path: str | Path) -> None:
        save_vectors(self.vectors, "draws", path, chains=str(self.chains))


@dataclass(frozen=True, slots=True)
class Point:
    """A single parameter vector: no uncertainty about the parameters is claimed."""

    vectors: Vectors

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Vectors]:
        yield self.vectors

    def save(self, path: str | Path) -> None:
        save_vectors(self.vectors, "point", path)


def combine(posteriors: Iterable[Posterior]) -> Draws:
    """All draws of several posteriors, every draw with the same weight; of equal length, they are chains.

    It is post-processing of what every one of them paid for: their ledgers, or their runs in one ledger, add up.
    """
    members = [list(posterior) for posterior in posteriors]
    if not members:
        raise InputError("posteriors must hold at least one posterior, found none")
    equal = len({len(member) for member in members}) == 1
    return Draws.of([draw for member in members for draw in member], len(members) if equal else 1)


# How each kind is made from what its file holds: its vectors and the facts beside them.
LOADERS: dict[str, Callable[[Vectors, Mapping[str, str]], Posterior]] = {
    "draws": lambda vectors, facts: Draws(vectors, int(facts.get("chains", 1))),
    "point": lambda vectors, facts: Point(vectors),
}


def load_posterior(path: str | Path) -> Posterior:
    """Read a posterior back. Safetensors hold numbers only, so a hostile file cannot run code."""
    try:
        with safe_open(str(path), framework="pt") as file:
            facts = file.metadata() or {}
            vectors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} is not a readable posterior: {error}") from error
    kind = facts.get("tacit_posterior")
    if kind not in LOADERS:
        raise InputError(f"{path} holds no Tacit posterior (its kind is {kind!r})")
    try:
        return LOADERS[kind](vectors, facts)
    except (KeyError, ValueError) as error:
        raise InputError(f"{path} holds no whole {kind} posterior: {error}") from error


def save_vectors(vectors: Mapping[str, Tensor], kind: str, path: str | Path, **facts: str) -> None:
    data = save({name: value.contiguous() for name, value in vectors.items()}, {"tacit_posterior": kind, **facts})
    replace_file(Path(path), data)
