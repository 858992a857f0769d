"""All attacks, by name."""

from reliability.boundary import (
    calls,
    chance,
    data_path,
    elsewhere,
    functions,
    hidden,
    identity,
    indices,
    kernels,
    last_bits,
    later,
    losses,
    models,
    numerics,
    outside,
    settings,
    several_rows,
    state,
    unnamed,
    written,
)
from reliability.boundary.attack import ATTACKS

THEMES = (
    chance, data_path, elsewhere, functions, calls, hidden, identity, indices, kernels, losses, models, last_bits,
    later, numerics, outside, settings, several_rows, state, unnamed, written,
)  # fmt: skip

__all__ = ["ATTACKS", "THEMES"]
