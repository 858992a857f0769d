"""The way out: a run leaves the house only if its ledger proves what it cost. Needs no torch."""

from tacit.ledger.manifest import write_manifest
from tacit.release.bundle import Released, release_run
from tacit.release.received import CheckedBundle, check_bundle

__all__ = ["CheckedBundle", "Released", "check_bundle", "release_run", "write_manifest"]
