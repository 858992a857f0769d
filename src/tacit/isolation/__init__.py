"""A user's code sees one record at a time: run under vmap or one after the other, watched, and its memory compared."""

from tacit.isolation.apart import Fill, Places, run_apart, writes_into_fresh
from tacit.isolation.batches import RecordGroup, count_records, map_tensors, take_records
from tacit.isolation.caches import fill_caches
from tacit.isolation.guard import StateGuard
from tacit.isolation.map_records import map_records
from tacit.isolation.rows import Isolated, RowsError, SplitError, UncoveredError, Watched
from tacit.isolation.surroundings import (
    as_written,
    no_reentrant_checkpoints,
    nothing_leaves,
    refuse_foreign_watchers,
)

__all__ = [
    "Fill",
    "Isolated",
    "Places",
    "RecordGroup",
    "RowsError",
    "SplitError",
    "StateGuard",
    "UncoveredError",
    "Watched",
    "as_written",
    "count_records",
    "fill_caches",
    "map_records",
    "map_tensors",
    "no_reentrant_checkpoints",
    "nothing_leaves",
    "refuse_foreign_watchers",
    "run_apart",
    "take_records",
    "writes_into_fresh",
]
