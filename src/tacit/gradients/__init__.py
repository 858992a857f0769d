"""Per-record gradients, clipped and summed, without touching the user's model."""

from tacit.gradients.clipped_sum import ClippedSum, Isolation, Strategy, clipped_sum
from tacit.gradients.computing import guard_of
from tacit.gradients.distances import gradient_distances

__all__ = ["ClippedSum", "Isolation", "Strategy", "clipped_sum", "gradient_distances", "guard_of"]
