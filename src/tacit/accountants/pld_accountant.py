"""The default accountant: privacy loss distributions by the contour integral, certified on both sides (maths.md 3)."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from tacit.accountants.guarantee import Guarantee
from tacit.accountants.pld import Bracket, PoissonGaussian, epsilon_bracket
from tacit.accountants.statement import check_ledger, refuse_adaptive, refuse_event, statement
from tacit.ledger import FixedSizeSample, Ledger, PoissonSample


def pld_events(ledger: Ledger, name: str = "pld") -> list[PoissonGaussian]:
    """The ledger as Poisson-sampled Gaussian releases; what is none is refused by name."""
    counts: dict[tuple[float, float], int] = {}
    for event, steps in ledger.merged().items():
        match event:
            case PoissonSample(probability=q, noise_multiplier=z):
                key = (q, z)
            case FixedSizeSample(size=size, population=population, noise_multiplier=z) if size == population:
                key = (1.0, z / 2)  # no sampling at all: a Gaussian whose sum moves by twice the clip norm
            case _:
                raise refuse_event(name, event)
        counts[key] = counts.get(key, 0) + steps
    return [PoissonGaussian(q, z, count) for (q, z), count in counts.items()]


def ledger_bracket(ledger: Ledger, delta: float) -> Bracket:
    """Certified lower and upper bounds of the ledger's epsilon; an empty ledger costs nothing."""
    events = tuple(pld_events(ledger))
    return _bracket(events, delta) if events else Bracket(0.0, 0.0)


@lru_cache(maxsize=64)
def _bracket(events: tuple[PoissonGaussian, ...], delta: float) -> Bracket:
    """Remembered, because several accountants and reports ask the same question."""
    return epsilon_bracket(events, delta)


@dataclass(frozen=True, slots=True)
class PLDAccountant:
    """Reports the upper end of the bracket; the lower end goes with it."""

    name: ClassVar[str] = "pld"

    def guarantee(self, ledger: Ledger, *, delta: float, evidence: object = None) -> Guarantee:
        check_ledger(ledger, delta)
        refuse_adaptive(self.name, ledger)
        bracket = ledger_bracket(ledger, delta)
        return statement(
            ledger, accountant=self.name, epsilon=bracket.upper, delta=delta, is_bound=True, lower=bracket.lower
        )
