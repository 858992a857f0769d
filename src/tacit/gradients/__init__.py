"""Per-record gradients, clipped and summed, without touching the user's model."""

from tacit.gradients.batches import RecordGroup, count_records, map_records, take_records
from tacit.gradients.clipped_sum import ClippedSum, GradientStrategy, clipped_sum
from tacit.gradients.distances import gradient_distances
from tacit.gradients.record_mixing import check_records_stay_apart, refuse_mixing_layers, replace_batch_norm

__all__ = [
    "ClippedSum",
    "GradientStrategy",
    "RecordGroup",
    "check_records_stay_apart",
    "clipped_sum",
    "count_records",
    "gradient_distances",
    "map_records",
    "refuse_mixing_layers",
    "replace_batch_norm",
    "take_records",
]
