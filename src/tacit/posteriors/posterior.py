"""A posterior is something that yields parameters. It is made of released numbers, so it may be kept and shared."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from tacit.errors import InputError

Vectors = dict[str, Tensor]


class Posterior(Protocol):
    def __len__(self) -> int:
        """How many draws it yields."""

    def __iter__(self) -> Iterator[Vectors]:
        """The draws, one at a time."""

    def save(self, path: str | Path) -> None: ...


@dataclass(frozen=True, slots=True)
class Draws:
    """Draws from a sampler, stacked: each vector has a leading dimension of draws."""

    vectors: Vectors

    @classmethod
    def of(cls, draws: Sequence[Mapping[str, Tensor]]) -> "Draws":
        if not draws:
            raise InputError("a posterior needs at least one draw, found none")
        return cls({name: torch.stack([draw[name] for draw in draws]) for name in draws[0]})

    def __len__(self) -> int:
        return len(next(iter(self.vectors.values())))

    def __iter__(self) -> Iterator[Vectors]:
        for index in range(len(self)):
            yield {name: value[index] for name, value in self.vectors.items()}

    def save(self, path: str | Path) -> None:
        save_vectors(self.vectors, "draws", path)


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


# How each kind is made from what its file holds: its vectors and the facts beside them.
LOADERS: dict[str, Callable[[Vectors, Mapping[str, str]], Posterior]] = {
    "draws": lambda vectors, facts: Draws(vectors),
    "point": lambda vectors, facts: Point(vectors),
}


def load_posterior(path: str | Path) -> Posterior:
    """Read a posterior back. Safetensors hold numbers only, so a hostile file cannot run code (failure-modes F20)."""
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
    save_file(
        {name: value.contiguous() for name, value in vectors.items()}, str(path), {"tacit_posterior": kind, **facts}
    )
