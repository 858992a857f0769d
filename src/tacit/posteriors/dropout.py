"""MC dropout as a posterior: one set of weights, and units dropped at random in every prediction."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from tacit.errors import InputError, check_count
from tacit.posteriors.normals import random_word
from tacit.posteriors.posterior import LOADERS, save_vectors
from tacit.types import Vectors


def dropout_layers(model: nn.Module) -> list[nn.Module]:
    """The layers that drop units: nn.Dropout and its relatives. Functional dropout cannot be found and is not."""
    return [module for module in model.modules() if isinstance(module, _DropoutNd)]


@contextmanager
def dropping(model: nn.Module) -> Iterator[None]:
    """Dropout on, everything else as it is, for the time of a call; every layer gets its own mode back."""
    layers = dropout_layers(model)
    modes = [layer.training for layer in layers]
    for layer in layers:
        layer.training = True
    try:
        yield
    finally:
        for layer, mode in zip(layers, modes, strict=True):
            layer.training = mode


@dataclass(frozen=True, slots=True)
class DropoutPosterior:
    """Weights whose predictions are averaged over ``draws`` dropout masks (Gal and Ghahramani 2016).

    The masks of draw s for the inputs from row r on follow from (seed, s, r): a prediction can be repeated, and the
    global random state is not touched.
    """

    vectors: Vectors
    draws: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("draws", self.draws)

    def __len__(self) -> int:
        return self.draws

    def __iter__(self) -> Iterator[Vectors]:
        for _ in range(self.draws):
            yield self.vectors

    @contextmanager
    def running(self, model: nn.Module, draw: int, first_row: int) -> Iterator[None]:
        """What ``predict`` opens around the forward pass of one draw on the inputs from ``first_row`` on."""
        if not dropout_layers(model):
            raise InputError("a dropout posterior needs a model with dropout layers, found none")
        device = next(iter(self.vectors.values())).device
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), dropping(model):
            word = random_word(self.seed, (draw << 32) + first_row)
            torch.default_generator.manual_seed(word)  # torch.manual_seed would reach for every device there is
            if devices:
                torch.cuda.manual_seed(word)
            yield

    def save(self, path: str | Path) -> None:
        save_vectors(self.vectors, "dropout", path, draws=str(self.draws), seed=str(self.seed))


def _load(vectors: Vectors, facts: Mapping[str, str]) -> DropoutPosterior:
    return DropoutPosterior(vectors, int(facts["draws"]), int(facts["seed"]))


LOADERS["dropout"] = _load
