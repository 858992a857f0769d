"""What both estimators share: declared facts, a fit that is charged to a ledger, and a refusal of private searches.

An argument that is left out is taken from the data, because scikit-learn's users expect ``fit(X, y)`` to work; the
guarantee then says so. Declare ``bounds``, ``classes`` and ``n_records`` and it does not have to.
"""

import sys
import tempfile
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit.accountants import Guarantee, Refusal, guarantees
from tacit.errors import InputError, RefusedError
from tacit.ledger import Ledger
from tacit.randomness import Randomness
from tacit.runs import Predictor, Problem, fit, training_plan
from tacit.tables import Category, Method, Number, Schema, Table, default_delta, encode, encode_inputs

Floats = NDArray[np.float64]
Bounds = tuple[ArrayLike, ArrayLike]
TARGET = "target"


class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """The common part of :class:`PrivateClassifier` and :class:`PrivateRegressor`."""

    epsilon: float
    delta: float | None
    bounds: Bounds | None
    n_records: int | None
    method: Method
    model: str
    ledger: str | PathLike[str] | None
    random_state: Any

    ledger_: Ledger
    settings_: list[dict[str, Any]]
    warnings_: list[str]
    delta_: float

    def __sklearn_clone__(self) -> Self:
        """Refuse to be copied by a search: it would score candidates on private folds, which no ledger records."""
        frame = sys._getframe()
        while (frame := frame.f_back) is not None:  # type: ignore[assignment]
            if str(frame.f_globals.get("__name__")).startswith("sklearn.model_selection"):
                raise RefusedError(
                    "a search or cross-validation scores fits on private folds, and neither fits nor scores would be "
                    "charged; compare on public data instead, one fit with one ledger each, and add up their epsilons"
                )
        return type(self)(**self.get_params(deep=False))

    @property
    def guarantees_(self) -> list[Guarantee | Refusal]:
        """What the fit cost, by every accountant, read off the ledger."""
        check_is_fitted(self)
        return guarantees(self.ledger_, self.delta_)

    def _fit(self, X: Floats, codes: Floats, target: Category | Number, taken: list[str]) -> Self:
        """Train on validated arrays; ``taken`` is what was read off the data so far."""
        columns, records = self._columns(X, taken), self._records(X, taken)
        schema = Schema(
            (*columns, target),
            dataset=type(self).__name__,
            records=records,
            target=TARGET,
            derived_from_private_data=bool(taken),
            source="declared in the constructor" if not taken else f"taken from data: {', '.join(taken)}",
        )
        self.delta_ = default_delta(records) if self.delta is None else self.delta
        problem = Problem(schema, TARGET, self.epsilon, self.delta_, self.method, self.model)
        data = encode(Table({**_table(X).columns, TARGET: codes}), schema, TARGET)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ledger.jsonl" if self.ledger is None else self.ledger
            fitted = fit(problem, data, training_plan(problem, path), randomness=self._randomness())
        self.ledger_ = fitted.ledger
        self.settings_ = [setting.to_json() for setting in problem.recipe.settings]
        self.warnings_ = list(problem.recipe.warnings)
        self._predictor = Predictor(problem, fitted.posterior, fitted.spread)
        return self

    def _columns(self, X: Floats, taken: list[str]) -> tuple[Number, ...]:
        if self.bounds is None:
            taken.append("bounds")
            with np.errstate(all="ignore"):
                low, high = np.nanmin(X, axis=0), np.nanmax(X, axis=0)
            low, high = np.nan_to_num(low), np.nan_to_num(high)
            same = low >= high
            low, high = np.where(same, low - 1, low), np.where(same, high + 1, high)
        else:
            low, high = both_bounds("bounds", self.bounds, X.shape[1])
        return tuple(Number(f"x{i}", float(low[i]), float(high[i])) for i in range(X.shape[1]))

    def _records(self, X: Floats, taken: list[str]) -> int:
        if self.n_records is None:
            taken.append("number of records")
            return len(X)
        return self.n_records

    def _randomness(self) -> Randomness:
        if self.random_state is None:
            return Randomness()
        return Randomness.seeded(int(check_random_state(self.random_state).randint(2**31)))

    def _inputs(self, X: ArrayLike) -> Any:
        values = validate_data(self, X, reset=False, ensure_all_finite="allow-nan", dtype=np.float64)
        return encode_inputs(_table(values), self._predictor.problem.schema, TARGET)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # a missing value counts as the middle of its bounds
        tags.non_deterministic = self.random_state is None
        return tags


def both_bounds(name: str, bounds: Any, size: int) -> tuple[Floats, Floats]:
    """(low, high), each a number or one for each feature, as two arrays."""
    try:
        low, high = (np.broadcast_to(np.asarray(side, dtype=np.float64), (size,)) for side in bounds)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be (low, high), each a number or {size} of them, found {bounds!r}") from error
    return low, high


def _table(X: Floats) -> Table:
    return Table({f"x{i}": X[:, i] for i in range(X.shape[1])})
