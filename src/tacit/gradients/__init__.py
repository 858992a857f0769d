"""Per-record gradients, clipped and summed, without touching the user's model."""

from tacit.gradients.batches import RecordGroup, count_records, take_records
from tacit.gradients.before_the_run import refuse_batch_norm, replace_batch_norm, rounds_by_place, try_out
from tacit.gradients.clipped_sum import ClippedSum, Strategy, clipped_sum, guard_of
from tacit.gradients.distances import gradient_distances
from tacit.gradients.map_records import map_records

__all__ = [
    "ClippedSum",
    "RecordGroup",
    "Strategy",
    "clipped_sum",
    "count_records",
    "gradient_distances",
    "guard_of",
    "map_records",
    "refuse_batch_norm",
    "replace_batch_norm",
    "rounds_by_place",
    "take_records",
    "try_out",
]
