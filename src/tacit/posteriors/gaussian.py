"""A Gaussian over all parameters: what variational inference and averaged chains end in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tacit.errors import InputError, check_count
from tacit.posteriors.normals import standard_normals
from tacit.posteriors.posterior import LOADERS, Draws, save_vectors
from tacit.types import Vectors


def flatten(vectors: Mapping[str, Tensor]) -> Tensor:
    """All vectors as one, in their order."""
    return torch.cat([value.reshape(-1) for value in vectors.values()])


def unflatten(flat: Tensor, like: Mapping[str, Tensor]) -> Vectors:
    """The inverse of :func:`flatten`, in the shapes of ``like``."""
    parts = torch.split(flat, [value.numel() for value in like.values()])
    return {name: part.view_as(value) for (name, value), part in zip(like.items(), parts, strict=True)}


@dataclass(frozen=True, slots=True)
class GaussianPosterior:
    """N(mean, diag(stddev^2)), or N(mean, L L^T) with ``scale_tril`` = L over the parameters flattened in their order.

    It yields ``draws`` draws, the same ones at every pass, because they are numbered by ``seed``.

    Example:
        >>> posterior = GaussianPosterior({"w": torch.zeros(3)}, stddev={"w": torch.ones(3)}, draws=5)
        >>> len(posterior), len(posterior.sample(2)), next(iter(posterior))["w"].shape
        (5, 2, torch.Size([3]))
    """

    mean: Vectors
    stddev: Vectors | None = None
    scale_tril: Tensor | None = None
    draws: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("draws", self.draws)
        if (self.stddev is None) == (self.scale_tril is None):
            raise InputError("give either stddev (mean-field) or scale_tril (full-rank)")
        if self.stddev is not None and {n: v.shape for n, v in self.stddev.items()} != self._shapes():
            raise InputError("stddev needs the names and shapes of mean")
        if self.stddev is not None and not all(bool((value >= 0).all()) for value in self.stddev.values()):
            raise InputError("stddev must not be negative nor NaN")
        if self.scale_tril is not None and self.scale_tril.shape != (self.dimension, self.dimension):
            raise InputError(f"scale_tril must be [{self.dimension}, {self.dimension}], one row per parameter")

    @property
    def dimension(self) -> int:
        return sum(value.numel() for value in self.mean.values())

    def __len__(self) -> int:
        return self.draws

    def __iter__(self) -> Iterator[Vectors]:
        for number in range(self.draws):
            yield self._draw(self.seed, number)

    def sample(self, count: int, seed: int | None = None) -> Draws:
        """``count`` draws; of another seed if one is given."""
        check_count("count", count)
        return Draws.of([self._draw(self.seed if seed is None else seed, number) for number in range(count)])

    def save(self, path: str | Path) -> None:
        vectors = {f"mean.{name}": value for name, value in self.mean.items()}
        if self.stddev is not None:
            vectors |= {f"stddev.{name}": value for name, value in self.stddev.items()}
        if self.scale_tril is not None:
            vectors["scale_tril"] = self.scale_tril
        order = "\n".join(self.mean)  # safetensors sorts names, and scale_tril follows the parameters' order
        save_vectors(vectors, "gaussian", path, draws=str(self.draws), seed=str(self.seed), order=order)

    def _draw(self, seed: int, number: int) -> Vectors:
        noise = standard_normals(seed, number, self.mean)
        if self.scale_tril is not None:
            moved = unflatten(self.scale_tril @ flatten(noise), self.mean)
            return {name: value + moved[name] for name, value in self.mean.items()}
        spread = self.stddev or {}
        return {name: value + spread[name] * noise[name] for name, value in self.mean.items()}

    def _shapes(self) -> dict[str, torch.Size]:
        return {name: value.shape for name, value in self.mean.items()}


def _load(vectors: Vectors, facts: Mapping[str, str]) -> GaussianPosterior:
    mean = {name: vectors[f"mean.{name}"] for name in facts["order"].split("\n")}
    full = vectors.get("scale_tril")
    stddev = None if full is not None else {name: vectors[f"stddev.{name}"] for name in mean}
    return GaussianPosterior(mean, stddev, full, int(facts["draws"]), int(facts["seed"]))


LOADERS["gaussian"] = _load
