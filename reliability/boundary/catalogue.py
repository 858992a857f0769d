"""All attacks, by name."""

from reliability.boundary import (
    chance,
    data_path,
    functions,
    hidden,
    identity,
    kernels,
    losses,
    models,
    numerics,
    state,
)
from reliability.boundary.attack import ATTACKS

THEMES = (chance, data_path, functions, hidden, identity, kernels, losses, models, numerics, state)

__all__ = ["ATTACKS", "THEMES"]
