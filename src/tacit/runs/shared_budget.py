"""The total of a ledger that several runs share: declared when it is opened, read from it afterwards."""

from pathlib import Path

from tacit.accountants import Budget
from tacit.errors import InputError
from tacit.ledger import read_ledger


def shared_total(ledger: Path | None, total: float | None, epsilon: float) -> float | None:
    """The epsilon of all runs together; None where the run has a ledger of its own."""
    if ledger is None:
        if total is not None:
            raise InputError("--budget-epsilon is the total of a shared ledger; name it with --budget")
        return None
    if ledger.is_dir():
        raise InputError(f"--budget {ledger} is a folder; name a ledger file")
    if not ledger.exists():
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
