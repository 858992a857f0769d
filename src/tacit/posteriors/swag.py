"""SWAG: a Gaussian fitted to the iterates of a run (Maddox et al. 2019). The iterates are paid for, so it is free.

    w = mean + sqrt(diagonal / 2) z1 + D z2 / sqrt(2 (rank - 1))

with z1, z2 standard normal, ``diagonal`` the iterates' variances, and D the deviations of the last ``rank`` iterates.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from safetensors.torch import save_file

from tacit.errors import InputError, check_count
from tacit.posteriors.posterior import LOADERS, Draws, Posterior
from tacit.types import Vectors


@final
@dataclass(frozen=True, slots=True)
class SWAG:
    """A Gaussian over weights: half of its covariance diagonal, half of low rank.

    Args:
        mean, diagonal: of the iterates.
        deviations: the last iterates less the mean, along a leading dimension.
        draws: how many draws it yields where a posterior is asked for, as by :func:`predict`.
        seed: of those draws; they are not privacy noise.

    Example:
        >>> iterates = Draws({"w": torch.tensor([[0.0], [1.0], [2.0]])})
        >>> SWAG.of(iterates, rank=2).sample(1000).vectors["w"].shape
        torch.Size([1000, 1])
    """

    mean: Vectors
    diagonal: Vectors
    deviations: Vectors
    draws: int = 30
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("draws", self.draws)

    @classmethod
    def of(cls, iterates: Posterior, rank: int = 20, draws: int = 30, seed: int = 0) -> "SWAG":
        """Fit it to kept iterates, as of ``train(..., keep_last=100)``."""
        vectors = Draws.of(list(iterates)).vectors
        if not 2 <= rank <= len(iterates):
            raise InputError(f"rank must lie between 2 and the {len(iterates)} iterates, found {rank}")
        mean = {name: value.mean(0) for name, value in vectors.items()}
        diagonal = {name: value.var(0, correction=0) for name, value in vectors.items()}
        return cls(mean, diagonal, {name: value[-rank:] - mean[name] for name, value in vectors.items()}, draws, seed)

    @property
    def rank(self) -> int:
        return len(next(iter(self.deviations.values())))

    def sample(self, count: int, seed: int | None = None) -> Draws:
        check_count("count", count)
        return Draws.of(list(self._sample(count, self.seed if seed is None else seed)))

    def _sample(self, count: int, seed: int) -> Iterator[Vectors]:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(count):
            common = torch.randn(self.rank, generator=generator) / math.sqrt(2 * (self.rank - 1))
            draw = {}
            for name, mean in sorted(self.mean.items()):  # a file has an order of its own
                own = torch.randn(mean.shape, generator=generator).to(mean)
                low_rank = torch.tensordot(common.to(mean), self.deviations[name], dims=1)
                draw[name] = mean + (self.diagonal[name] / 2).sqrt() * own + low_rank
            yield {name: draw[name] for name in self.mean}

    def __len__(self) -> int:
        return self.draws

    def __iter__(self) -> Iterator[Vectors]:
        return self._sample(self.draws, self.seed)

    def save(self, path: str | Path) -> None:
        parts = {"mean": self.mean, "diagonal": self.diagonal, "deviations": self.deviations}
        tensors = {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}
        facts = {"tacit_posterior": "swag", "draws": str(self.draws), "seed": str(self.seed)}
        save_file({name: value.contiguous() for name, value in tensors.items()}, str(path), facts)

    @classmethod
    def from_file(cls, vectors: Vectors, facts: Mapping[str, str]) -> "SWAG":
        """From what :meth:`save` wrote."""
        parts: dict[str, Vectors] = {"mean": {}, "diagonal": {}, "deviations": {}}
        for name, value in vectors.items():
            part, _, own = name.partition(".")
            parts[part][own] = value
        return cls(**parts, draws=int(facts["draws"]), seed=int(facts["seed"]))


LOADERS["swag"] = SWAG.from_file
