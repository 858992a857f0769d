"""What a run shares with others on the same data: a ledger with a total, and a registry."""

from pathlib import Path

from tacit.accountants import Budget
from tacit.errors import InputError
from tacit.ledger import is_begun, read_ledger
from tacit.runs.folder import RunFolder
from tacit.tables import Schema


def shared_total(ledger: Path | None, total: float | None, epsilon: float) -> float | None:
    """The epsilon of all runs together, declared when the ledger is opened; None where the run has one of its own."""
    if ledger is None:
        if total is not None:
            raise InputError("--budget-epsilon is the total of a shared ledger; name it with --budget")
        return None
    if ledger.is_dir():
        raise InputError(f"--budget {ledger} is a folder; name a ledger file")
    if not is_begun(ledger):
        if total is None:
            raise InputError(
                f"{ledger} does not exist yet; open it with its total, as in --budget-epsilon {2 * epsilon:g}"
            )
        return total
    found = Budget.of(read_ledger(ledger))
    if found is None:
        raise InputError(f"{ledger} declares no budget, so nothing can be shared of it")
    if total is not None and total != found.epsilon:
        raise InputError(f"{ledger} was opened with a total of {found.epsilon:g}, --budget-epsilon says {total:g}")
    return found.epsilon


def registry_name(asked: str | None, schema: Schema, path: Path | None, folder: RunFolder) -> str | None:
    """The registry as run.json names it: the one asked for, or that of the schema, seen from the schema's folder."""
    if asked is not None or path is None or schema.registry is None:
        return asked
    return folder.name_of(path.parent / schema.registry)
