"""What a search for settings tries, in public facts: a small grid, how many trials there are, and how each is scored.

A candidate changes nothing that the ledger is charged for: the clip norm and the learning rate are free, because the
noise is relative to the first and the second acts on what was released. So the same charge pays for any of them.
"""

from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal, get_args

from tacit.accountants.renyi.trials import gamma_for_trials
from tacit.errors import InputError, check_choice, check_positive
from tacit.ledger import NegativeBinomialTrials, PoissonTrials

Law = Literal["poisson", "logarithmic", "geometric"]
By = Literal["brier", "accuracy"]
_ETAS = {"logarithmic": 0.0, "geometric": 1.0}
_GRID = {"rate": (0.5, 1.0, 2.0), "clip": (0.5, 1.0)}
_MOST = 64  # candidates: of more, a handful of trials would see few


@dataclass(frozen=True, slots=True)
class Candidate:
    """One point of the grid: factors of the default learning rate and clip norm, another model or method."""

    rate: float = 1.0
    clip: float = 1.0
    model: str | None = None
    method: str | None = None

    def to_json(self) -> dict[str, Any]:
        said = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in said.items() if value is not None}

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
                         for name, value in self.to_json().items())  # fmt: skip


DEFAULTS = Candidate()


@dataclass(frozen=True, slots=True)
class Search:
    """How settings are searched for.

    Args:
        grid: what is tried, by name: ``rate`` and ``clip`` (factors of the default), ``model``, ``method``. A candidate
            takes one value of each.
        trials: how many are run on average; how many really are is secret.
        law: their distribution. ``poisson`` costs least; the others are theorem 2 of Papernot and Steinke 2022.
        by: what a trial of a classifier is scored by; numbers are scored by their squared error.

    Example:
        >>> search = Search()
        >>> len(search.candidates), str(search.candidates[0]), search.number
        (6, 'rate 0.5, clip 0.5', PoissonTrials(mean=5.0))
    """

    grid: dict[str, tuple[float | str, ...]] = field(default_factory=lambda: dict(_GRID))
    trials: float = 5.0
    law: Law = "poisson"
    by: By = "brier"

    def __post_init__(self) -> None:
        check_choice("law", self.law, get_args(Law))
        check_choice("by", self.by, get_args(By))
        check_positive("trials", self.trials)
        for name, values in self.grid.items():
            check_choice("what is tried", name, Candidate.__slots__)
            if not values or len(set(values)) != len(values):
                raise InputError(f"{name} must be tried at different values, found {list(values)!r}")
            for value in values:
                _check_value(name, value)
        if not 2 <= len(self.candidates) <= _MOST:
            raise InputError(f"a search has 2 to {_MOST} candidates, found {len(self.candidates)}")
        _ = self.number

    def __hash__(self) -> int:
        return hash((tuple(self.grid.items()), self.trials, self.law, self.by))

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        return tuple(Candidate(**dict(zip(self.grid, values, strict=True))) for values in product(*self.grid.values()))  # type: ignore[arg-type]

    @property
    def number(self) -> PoissonTrials | NegativeBinomialTrials:
        """The distribution of the number of trials, as the ledger tells it."""
        if self.law == "poisson":
            return PoissonTrials(float(self.trials))
        eta = _ETAS[self.law]
        return NegativeBinomialTrials(eta, gamma_for_trials(self.trials, eta))

    def to_json(self) -> dict[str, Any]:
        grid = {name: list(values) for name, values in self.grid.items()}
        return {"grid": grid, "trials": self.trials, "law": self.law, "by": self.by}

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> "Search":
        grid = {name: tuple(values) for name, values in facts["grid"].items()}
        return cls(grid, facts["trials"], facts["law"], facts["by"])


def _check_value(name: str, value: object) -> None:
    if name in ("rate", "clip"):
        check_positive(f"{name} to try", value)
    elif not isinstance(value, str):
        raise InputError(f"{name} to try must be a name, found {value!r}")
