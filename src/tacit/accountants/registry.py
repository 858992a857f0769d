"""All accountants by name. A new one is one line here; its contract tests then run by themselves."""

from collections.abc import Sequence
from inspect import signature

from tacit.accountants.gdp import GDPAccountant
from tacit.accountants.guarantee import Accountant, Guarantee, Refusal, check_delta
from tacit.accountants.pld.accountant import PLDAccountant
from tacit.accountants.renyi.rdp import RDPAccountant
from tacit.errors import InputError, RefusedError, TacitError
from tacit.ledger import Ledger

ACCOUNTANTS: dict[str, Accountant] = {
    accountant.name: accountant for accountant in (PLDAccountant(), RDPAccountant(), GDPAccountant())
}


def get_accountant(name: str | Accountant) -> Accountant:
    """The accountant of that name; one that is given is returned."""
    if callable(ask := getattr(name, "guarantee", None)):
        evidence = signature(ask).parameters.get("evidence")
        if evidence is not None and evidence.default is evidence.empty:
            raise InputError(f"{type(name).__name__} needs evidence: ask it by guarantee(ledger, evidence, delta=...)")
        return name  # type: ignore[return-value]
    if not isinstance(name, str) or name not in ACCOUNTANTS:
        raise InputError(f"accountant must be one of {', '.join(ACCOUNTANTS)}, found {name!r}")
    return ACCOUNTANTS[name]


def guarantees(ledger: Ledger, delta: float, only: Sequence[str] | None = None) -> list[Guarantee | Refusal]:
    """What every accountant (or ``only`` some) says about a ledger; one that cannot read it says why."""
    if not isinstance(ledger, Ledger):
        raise InputError(f"ledger must be a Ledger, as read_ledger gives it, found {type(ledger).__name__}")
    if isinstance(only, str):
        raise InputError(f"only takes a list of accountants, found the text {only!r}")
    check_delta(delta, ledger.header.dataset_size)
    return [_guarantee_or_refusal(get_accountant(name), ledger, delta) for name in only or ACCOUNTANTS]


def _guarantee_or_refusal(accountant: Accountant, ledger: Ledger, delta: float) -> Guarantee | Refusal:
    try:
        return accountant.guarantee(ledger, delta=delta)
    except RefusedError as error:
        return Refusal(accountant.name, str(error))
    except TacitError:
        raise
    except (ArithmeticError, ValueError, MemoryError) as error:  # a noise multiplier of 1e-300, say
        reason = f"the numbers of this ledger are beyond what it can compute with ({type(error).__name__})"
        return Refusal(accountant.name, reason)
