"""All attacks, by name."""

from reliability.boundary import (
    calls,
    chance,
    data_path,
    functions,
    hidden,
    identity,
    kernels,
    last_bits,
    losses,
    models,
    numerics,
    state,
)
from reliability.boundary.attack import ATTACKS

THEMES = (chance, data_path, functions, calls, hidden, identity, kernels, losses, models, last_bits, numerics, state)

__all__ = ["ATTACKS", "THEMES"]
