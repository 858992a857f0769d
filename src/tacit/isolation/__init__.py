"""A user's code sees one record at a time: run under vmap or one after the other, watched, and its memory compared."""

from tacit.isolation.apart import run_apart, writes_into_fresh
from tacit.isolation.caches import fill_caches
from tacit.isolation.guard import StateGuard, refuse_foreign_watchers
from tacit.isolation.map_records import map_records
from tacit.isolation.rows import Isolated, RowsError, SplitError, UncoveredError, Watched
from tacit.isolation.surroundings import as_written, nothing_leaves, plain_checkpoints

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
    "nothing_leaves",
    "plain_checkpoints",
    "refuse_foreign_watchers",
    "run_apart",
    "writes_into_fresh",
]
