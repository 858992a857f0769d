"""What lies in a run's folder: the ledger, from which every number is computed, and facts that were declared beside it.

Only the ledger must be there. run.json holds public facts of a run from a table, evaluation.json what its predictions
were worth on data declared public, and the evidence (read only if asked for) is private.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from tacit.errors import InputError
from tacit.evidence import Evidence, Kind, check_bound, evidence_path, load_evidence
from tacit.ledger import Head, Ledger, ledger_path, read_ledger, verify_ledger
from tacit.ledger.manifest import check_if_finished
from tacit.reports.evaluation_file import Evaluation, parse_evaluation
from tacit.reports.fields import Fields
from tacit.reports.text import clean

FORMAT = 1
_LARGEST = 20_000_000  # bytes of a JSON file that is still read


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a run and the reason for it."""

    name: str
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class Facts:
    """run.json: what was declared about a run from a table. Public, but not proved by the ledger."""

    task: str
    target: str
    classes: tuple[str, ...]
    features: tuple[str, ...]
    dataset: str | None
    n_records: int | None
    unit: str | None
    method: str
    model: str
    epsilon: float | None
    delta: float | None
    effective_temperature: float | None
    settings: tuple[Setting, ...]
    warnings: tuple[str, ...]
    derived_schema: bool


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Everything a report may speak of."""

    ledger: Ledger
    head: Head
    torn_bytes: int
    facts: Facts | None
    evaluation: Evaluation | None
    evidence: tuple[Evidence, ...] = ()


def read_run(run: str | Path, *, evidence: bool = False) -> RunFolder:
    """Read a run's folder or ledger; a file that is there but cannot be read is an error, not a gap."""
    ledger, chain = read_ledger(run), verify_ledger(run)
    home = ledger_path(run).parent
    check_if_finished(home)
    declared, measured = _read_json(home / "run.json"), _read_json(home / "evaluation.json")
    return RunFolder(
        ledger=ledger,
        head=chain.head,
        torn_bytes=chain.torn_bytes,
        facts=None if declared is None else parse_facts(declared),
        evaluation=None if measured is None else parse_evaluation(measured),
        evidence=_evidence(run) if evidence else (),
    )


def _evidence(run: str | Path) -> tuple[Evidence, ...]:
    paths = [path for kind in get_args(Kind) if (path := evidence_path(run, kind)).exists()]
    if not paths:
        raise InputError(
            f"{run} has no evidence beside its ledger; train with --bayesian-evidence, or leave --bayesian"
        )
    found = tuple(load_evidence(path) for path in paths)
    for item in found:
        check_bound(item, run)
    return found


def _read_json(path: Path) -> Fields | None:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > _LARGEST:
        raise InputError(f"{path} is larger than {_LARGEST:,} bytes; it is not a file that tacit wrote")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from error
    fields = Fields(path.name, found)
    fields.check_format(FORMAT)
    return fields


def parse_facts(given: Fields) -> Facts:
    """run.json as a value; every field is optional, a field of the wrong type is an error that names it."""
    schema = given.part("schema")
    return Facts(
        task=given.text("task", ""),
        target=given.text("target", ""),
        classes=given.names("classes"),
        features=given.names("features"),
        dataset=given.text("dataset", "") or None,
        n_records=given.count("n_records"),
        unit=given.text("unit", "") or None,
        method=given.text("method", ""),
        model=given.text("model", ""),
        epsilon=given.number("epsilon"),
        delta=given.number("delta"),
        effective_temperature=given.number("effective_temperature"),
        settings=tuple(_setting(item) for item in given.parts("settings")),
        warnings=given.names("warnings"),
        derived_schema=schema is not None and schema.truth("derived_from_private_data"),
    )


def _setting(item: Fields) -> Setting:
    value: Any = item.value("value")
    return Setting(item.text("name", "unnamed"), clean(_short(value)), item.text("why", ""))


def _short(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case str() | int():
            return str(value)
        case _:
            return json.dumps(value)
