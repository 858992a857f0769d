"""A user's code sees one record at a time: run under vmap or one after the other, watched, and its memory compared."""

from tacit.isolation.apart import run_apart, writes_into_fresh
from tacit.isolation.caches import fill_caches
from tacit.isolation.guard import StateGuard, refuse_foreign_watchers
from tacit.isolation.map_records import map_records
from tacit.isolation.rows import Isolated, RowsError, SplitError, UncoveredError, Watched
from tacit.isolation.surroundings import as_written, no_reentrant_checkpoints, nothing_leaves

__all__ = [
    "Isolated",
    "RowsError",
    "SplitError",
    "StateGuard",
    "UncoveredError",
    "Watched",
    "as_written",
    "fill_caches",
    "map_records",
    "no_reentrant_checkpoints",
    "nothing_leaves",
    "refuse_foreign_watchers",
    "run_apart",
    "writes_into_fresh",
]
