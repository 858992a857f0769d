"""Trying to break the guarantee: replays, statistics of noise and sampling, canaries, and a recount of the ledger."""

from tacit.audit.attacks import check_one_run, check_retraining
from tacit.audit.audit import perform, run_checks, self_checks
from tacit.audit.canary import check_canary
from tacit.audit.engine.check import check_engine
from tacit.audit.finding import Finding
from tacit.audit.formulas import check_formulas
from tacit.audit.noise.check import check_noise
from tacit.audit.records import check_records
from tacit.audit.recount import check_recount
from tacit.audit.replay import check_replay
from tacit.audit.sampler import check_sampler

__all__ = [
    "Finding",
    "check_canary",
    "check_engine",
    "check_formulas",
    "check_noise",
    "check_one_run",
    "check_records",
    "check_recount",
    "check_replay",
    "check_retraining",
    "check_sampler",
    "perform",
    "run_checks",
    "self_checks",
]
