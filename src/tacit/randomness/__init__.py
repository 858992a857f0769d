"""Where chance comes from: cryptographic by default, seeded for tests only (which marks the run)."""

from tacit.randomness.layers import random_layers
from tacit.randomness.streams import Randomness

__all__ = ["Randomness", "random_layers"]
