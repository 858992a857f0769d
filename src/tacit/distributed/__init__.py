"""Several processes, one run: one sampling decision per record, one noise, one ledger."""

from tacit.distributed.ledgers import SharedLedger, open_ledger
from tacit.distributed.ranks import Ranks, current_ranks

__all__ = ["Ranks", "SharedLedger", "current_ranks", "open_ledger"]
