"""What happened: public facts about each release, in a durable hash-chained file. Standard library only."""

from tacit.ledger.chain import Chain, Head
from tacit.ledger.charges import Charge, Charges
from tacit.ledger.event_json import event_from_json, event_to_json
from tacit.ledger.events import (
    BallsInBinsStep,
    DiscretePoissonSample,
    FixedSizeSample,
    NegativeBinomialTrials,
    Neighbours,
    PoissonSample,
    PoissonTrials,
    PosteriorSample,
    SamplingEvent,
    ShuffledStep,
    ThresholdedSample,
    Tuned,
    Unit,
)
from tacit.ledger.file import LedgerFile, is_begun, ledger_path, ledger_so_far, read_ledger, verify_ledger
from tacit.ledger.ledger import Ledger, LedgerHeader
from tacit.ledger.registered_runs import RegisteredRun, joined, registered_runs
from tacit.ledger.registry import RegisteredLedger
from tacit.ledger.sums import GaussianSumQuery, merged_noise_multiplier

__all__ = [
    "BallsInBinsStep",
    "Chain",
    "Charge",
    "Charges",
    "DiscretePoissonSample",
    "FixedSizeSample",
    "GaussianSumQuery",
    "Head",
    "Ledger",
    "LedgerFile",
    "LedgerHeader",
    "NegativeBinomialTrials",
    "Neighbours",
    "PoissonSample",
    "PoissonTrials",
    "PosteriorSample",
    "RegisteredLedger",
    "RegisteredRun",
    "SamplingEvent",
    "ShuffledStep",
    "ThresholdedSample",
    "Tuned",
    "Unit",
    "event_from_json",
    "event_to_json",
    "is_begun",
    "joined",
    "ledger_path",
    "ledger_so_far",
    "merged_noise_multiplier",
    "read_ledger",
    "registered_runs",
    "verify_ledger",
]
