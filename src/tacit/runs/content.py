"""What a run's folder says, for those who only read it: ledger, facts, evaluation and, if asked for, evidence."""

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from tacit.errors import InputError
from tacit.evidence import Evidence, Kind, check_bound, evidence_path, load_evidence
from tacit.ledger import Head, Ledger, ledger_path, read_ledger, verify_ledger
from tacit.ledger.manifest import check_if_finished
from tacit.runs.facts import FORMAT, DeclaredFacts, parse_facts
from tacit.runs.folder import RunFolder
from tacit.runs.quality.evaluation_file import Evaluation, parse_evaluation
from tacit.storage.json_files import read_json


@dataclass(frozen=True, slots=True)
class RunContent:
    """Everything that a report may speak of. Only the ledger must be there."""

    ledger: Ledger
    head: Head
    torn_bytes: int
    facts: DeclaredFacts | None
    evaluation: Evaluation | None
    evidence: tuple[Evidence, ...] = ()


def read_content(run: str | Path, *, evidence: bool = False) -> RunContent:
    """Read a run's folder or ledger; a file that is there but cannot be read is an error, not a gap."""
    ledger, chain = read_ledger(run), verify_ledger(run)
    folder = RunFolder(ledger_path(run).parent)
    check_if_finished(folder.path)
    declared, measured = read_json(folder.facts, FORMAT), read_json(folder.evaluation, FORMAT)
    return RunContent(
        ledger=ledger,
        head=chain.head,
        torn_bytes=chain.torn_bytes,
        facts=None if declared is None else parse_facts(declared),
        evaluation=None if measured is None else parse_evaluation(measured),
        evidence=read_evidence(run) if evidence else (),
    )


def read_evidence(run: str | Path) -> tuple[Evidence, ...]:
    """The private evidence beside a run's ledger, each checked to belong to it."""
    paths = [path for kind in get_args(Kind) if (path := evidence_path(run, kind)).exists()]
    if not paths:
        raise InputError(
            f"{run} has no evidence beside its ledger; train with --bayesian-evidence, or leave --bayesian"
        )
    found = tuple(load_evidence(path) for path in paths)
    for item in found:
        check_bound(item, run)
    return found
