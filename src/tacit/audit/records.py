"""Check 6 on a run: its chain and head, what its files claim, and whether the claims follow from the ledger."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from tacit.accountants import Budget, Guarantee, best_bound, guarantees
from tacit.audit.finding import Finding, raise_machine_errors
from tacit.errors import InputError, LedgerError
from tacit.ledger import Head, Ledger, ledger_path, read_ledger, verify_ledger

_CHECKPOINT = "tacit_checkpoint"
_MOST_BYTES = 1 << 24  # a statement is small
_ROOM = 1e-6  # relative, for numbers that were rounded when they were written down


def checkpoint_head(path: Path) -> Head | None:
    """The ledger's head that a checkpoint names; None for a file that is no checkpoint."""
    try:
        with safe_open(str(path), framework="np") as file:
            facts = (file.metadata() or {}).get(_CHECKPOINT)
    except (OSError, SafetensorError):
        return None
    if facts is None:
        return None
    try:
        head = json.loads(facts)["head"]
        return Head(int(head["count"]), str(head["hash"]))
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is a damaged checkpoint: {error}") from error


@dataclass(frozen=True, slots=True)
class Claim:
    """An (epsilon, delta) that somebody wrote down, and by which accountant if that is said."""

    where: str
    epsilon: float
    delta: float
    accountant: str | None = None


def claims_beside(folder: Path) -> list[Claim]:
    """Every (epsilon, delta) in the JSON files of a folder that is stated as a worst-case bound."""
    found = []
    for path in sorted(folder.glob("*.json")):
        if path.stat().st_size <= _MOST_BYTES:
            found += list(_walk(_content(path), path.name))
    return found


def _content(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError, OSError) as error:
        raise InputError(f"{path} cannot be read as JSON: {error}") from error


def _walk(value: Any, where: str) -> Iterator[Claim]:
    match value:
        case {"is_bound": False} | {"notion": "bayesian_dp"}:
            return
        case {"epsilon": int() | float() as epsilon, "delta": int() | float() as delta}:
            accountant = value.get("accountant")
            yield Claim(where, float(epsilon), float(delta), accountant if isinstance(accountant, str) else None)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in inner:
        yield from _walk(part, where)


def check_records(run: Path, delta: float) -> Finding:
    """Verify the chain, ask every accountant again, and compare with every epsilon that the run's files state.

    Raises:
        LedgerError: there is no ledger, or it is damaged: then there is nothing that could be audited.
    """
    path = ledger_path(run)
    chain, ledger = verify_ledger(path), read_ledger(path)
    broke: list[str] = []
    if ledger.header.randomness == "seeded":
        broke.append("the run was seeded: whoever knows the seed can take the noise away")
    checkpoints = 0
    for file in sorted(path.parent.glob("*.safetensors")):
        head = checkpoint_head(file)
        if head is not None:
            checkpoints += 1
            broke += _continues(path, file, head)
    claims = claims_beside(path.parent)
    budget = Budget.of(ledger)
    if budget is not None:
        claims.append(Claim("the ledger's declared budget", budget.epsilon, budget.delta))
    for claim in claims:
        broke += _follows(ledger, claim)
    sentences, measured = _agree(ledger, delta)
    torn = f", {chain.torn_bytes} torn bytes charged" if chain.torn_bytes else ""
    return Finding(
        "records",
        f"chain and head, {checkpoints} checkpoints, {len(claims)} stated epsilons{torn}",
        chain.head.count,
        (*broke, *sentences),
        measured,
    )


def _continues(ledger: Path, file: Path, head: Head) -> list[str]:
    try:
        verify_ledger(ledger, since=head)
    except LedgerError as error:
        raise_machine_errors(error)
        return [f"{file.name} was made under a ledger that this one does not continue: {error}"]
    return []


def _follows(ledger: Ledger, claim: Claim) -> list[str]:
    """A stated epsilon must not be below what the accountants say about the ledger at the same delta."""
    said = guarantees(ledger, claim.delta)
    best = best_bound(one for one in said if claim.accountant in (None, one.accountant))
    if best is None:
        return [f"{claim.where} states epsilon {claim.epsilon:g}, which no accountant can confirm"]
    if claim.epsilon < best.epsilon * (1 - _ROOM):
        return [
            f"{claim.where} states epsilon {claim.epsilon:g}, the ledger says {best.epsilon:.6g} ({best.accountant})"
        ]
    return []


def _agree(ledger: Ledger, delta: float) -> tuple[list[str], str]:
    """Every accountant again; no upper bound may lie below the certified lower one."""
    said = [one for one in guarantees(ledger, delta) if isinstance(one, Guarantee)]
    lower = max((one.lower for one in said if one.lower is not None), default=0.0)
    broke = [f"{one.accountant} says {one.epsilon:.6g}, below the certified {lower:.6g}" for one in said
             if one.is_bound and one.epsilon < lower * (1 - _ROOM)]  # fmt: skip
    numbers = ", ".join(f"{one.accountant} {one.epsilon:.4f}" for one in said) or "no accountant reads this ledger"
    return broke, f"{ledger.steps} steps, delta {delta:g}: {numbers}"
