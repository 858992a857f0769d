"""All attacks, by name."""

from reliability.boundary import chance, data_path, functions, losses, models, state
from reliability.boundary.attack import ATTACKS

__all__ = ["ATTACKS", "chance", "data_path", "functions", "losses", "models", "state"]
