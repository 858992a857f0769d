"""Several processes, one run: each draws and computes its own units and adds noise to its own part; one ledger."""

from tacit.distributed.group import has_lost
from tacit.distributed.ledgers import SharedLedger, open_ledger
from tacit.distributed.ranks import Ranks, current_ranks, in_a_job, is_sharded
from tacit.distributed.replicas import release_together

__all__ = [
    "Ranks",
    "SharedLedger",
    "current_ranks",
    "has_lost",
    "in_a_job",
    "is_sharded",
    "open_ledger",
    "release_together",
]
