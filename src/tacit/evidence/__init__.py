"""Private side-car: how far single records could move a run, bound to its ledger by hash. Numpy only."""

from tacit.evidence.evidence import Evidence, Kind, Shares, Stretch, round_up
from tacit.evidence.file import check_bound, evidence_path, load_evidence, save_evidence

__all__ = [
    "Evidence",
    "Kind",
    "Shares",
    "Stretch",
    "check_bound",
    "evidence_path",
    "load_evidence",
    "round_up",
    "save_evidence",
]
