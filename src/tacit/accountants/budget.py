"""How much may be spent, and how several runs may share it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tacit.accountants.guarantee import check_delta
from tacit.errors import InputError, check_positive, is_number
from tacit.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that all releases together may cost.

    Example:
        >>> Budget(1.0, 1e-5).split([0.25, 0.75])[0]
        Budget(epsilon=0.25, delta=2.5e-06)
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check_delta(self.delta)
        check_positive("epsilon", self.epsilon)

    @classmethod
    def of(cls, ledger: Ledger) -> "Budget | None":
        """The budget that a ledger declared at opening, if any."""
        header = ledger.header
        return None if header.epsilon is None or header.delta is None else cls(header.epsilon, header.delta)

    def split(self, shares: Sequence[float]) -> list["Budget"]:
        """One budget per run, declared before the first; by basic composition they never add up to more than this."""
        if not shares or not all(is_number(share) and share > 0 for share in shares) or math.fsum(shares) > 1:
            raise InputError(f"shares must be positive and add up to at most 1, found {shares!r}")
        return [Budget(self.epsilon * share, self.delta * share) for share in shares]
