"""Standard normal draws by number: draw ``number`` of a seed is the same in every process and after every restart.

These are draws *from* something public (an approximate posterior, the weights at which a gradient is taken). They hide
nothing, so they may be repeated; noise that hides records comes from ``tacit.randomness`` alone.
"""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from tacit.errors import InputError


def standard_normals(seed: int, number: int, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Vectors of the shapes and types of ``like``, by a counter-based generator: no state has to be kept.

    Example:
        >>> first = standard_normals(7, 0, {"w": torch.zeros(2)})["w"]
        >>> bool((first == standard_normals(7, 0, {"w": torch.zeros(2)})["w"]).all())
        True
    """
    generator = np.random.Generator(_counter(seed, number))
    return {
        name: torch.from_numpy(np.asarray(generator.standard_normal(tuple(value.shape)))).to(value)
        for name, value in like.items()
    }


def random_word(seed: int, number: int) -> int:
    """A seed for another generator, below 2^32."""
    return int(_counter(seed, number).random_raw()) >> 32


def check_seed(seed: int) -> None:
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**64:
        raise InputError(f"seed must be a whole number from 0 to 2^64 - 1, found {seed!r}")


def _counter(seed: int, number: int) -> np.random.Philox:
    check_seed(seed)
    return np.random.Philox(key=(number << 64) | seed)
