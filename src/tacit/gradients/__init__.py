"""Per-record gradients, clipped and summed, without touching the user's model."""

from tacit.errors import former_names
from tacit.gradients.clipped_sum import ClippedSum, Isolation, Strategy, clipped_sum
from tacit.gradients.computing import guard_of
from tacit.gradients.distances import gradient_distances

__all__ = ["ClippedSum", "Isolation", "Strategy", "clipped_sum", "gradient_distances", "guard_of"]

_MOVED = ("replace_batch_norm", "refuse_layers")
__getattr__ = former_names(__name__, {"layers": "tacit.layers"} | {name: f"tacit.layers.{name}" for name in _MOVED})
