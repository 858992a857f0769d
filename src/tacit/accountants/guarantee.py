"""What an accountant says: a guarantee with everything needed to read it rightly, or a refusal with its reason."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from tacit.errors import InputError, check_count, is_number
from tacit.ledger import Neighbours, Unit

Notion = Literal["dp", "bayesian_dp"]


@dataclass(frozen=True, slots=True)
class Guarantee:
    """(epsilon, delta) and what it means.

    Args:
        epsilon: the number to report; an upper bound if ``is_bound``.
        notion: "dp" (worst case over all data) or "bayesian_dp" (typical data); the two are never compared silently.
        lower: where known, a certified lower bound of the true epsilon of the recorded mechanisms.
        percentile: for statements about a share of the data, that share.
    """

    epsilon: float
    delta: float
    notion: Notion
    neighbours: Neighbours
    unit: Unit
    accountant: str
    assumptions: tuple[str, ...]
    is_bound: bool
    lower: float | None = None
    percentile: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "assumptions": list(self.assumptions)}


@dataclass(frozen=True, slots=True)
class Refusal:
    """An accountant that cannot read a ledger says so, and why; it never guesses."""

    accountant: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {"accountant": self.accountant, "refused": self.reason}


def check_delta(delta: float, dataset_size: int | None = None) -> None:
    """delta must lie in (0, 1) and, where the number of units is declared, below one over it (failure-modes F22)."""
    if not (is_number(delta) and 0 < delta < 1):
        raise InputError(f"delta must lie strictly between 0 and 1, found {delta!r}")
    if dataset_size is None:
        return
    check_count("dataset_size", dataset_size)
    if delta >= 1 / dataset_size:
        raise InputError(
            f"delta {delta:g} is not below 1/{dataset_size}: it would allow the full publication of a record; "
            f"choose a smaller one, such as {0.1 / dataset_size:.1g}"
        )
