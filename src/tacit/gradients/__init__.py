"""Per-record gradients, clipped and summed, without touching the user's model."""

from tacit.gradients.before_the_run import refuse_layers, replace_batch_norm, rounds_by_place, try_out
from tacit.gradients.clipped_sum import ClippedSum, Strategy, clipped_sum
from tacit.gradients.computing import guard_of
from tacit.gradients.distances import gradient_distances

__all__ = [
    "ClippedSum",
    "Strategy",
    "clipped_sum",
    "gradient_distances",
    "guard_of",
    "refuse_layers",
    "replace_batch_norm",
    "rounds_by_place",
    "try_out",
]
