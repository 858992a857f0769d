"""What both estimators share: declared facts, and a fit that is charged to a ledger.

An argument that is left out is taken from the data, because scikit-learn's users expect ``fit(X, y)`` to work; a
warning and the guarantee then say so. Declare ``bounds``, ``classes`` and ``n_records`` and they do not have to.
"""

import tempfile
import warnings
from collections.abc import Mapping
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit.accountants import Guarantee, Refusal, guarantees
from tacit.errors import InputError, UndeclaredWarning, check_positive
from tacit.estimators.wrappers import refuse_uncharged_wrappers
from tacit.ledger import Ledger, RegisteredLedger
from tacit.randomness import Randomness
from tacit.runs import Problem, RunFacts, RunFolder, train_table
from tacit.tables import Category, Method, Number, Scaling, Schema, Table, default_delta, encode, encode_inputs
from tacit.types import Floats

Bounds = tuple[ArrayLike, ArrayLike]
TARGET = "target"
WEIGHT = "sample_weight"

_TRANSFORMED = (
    "inputs are protected as fit got them: what was learned from private records before (a scaler, an encoder, a "
    "selector, also as a step of a Pipeline) is not covered by epsilon"
)
_ARGUMENTS = {"bounds": "bounds", "classes": "classes", "target bounds": "target_bounds",
              "number of records": "n_records", "largest sample weight": "sample_weight_bound"}  # fmt: skip
_fits_without_a_ledger = count(1)
_warned_of: set[tuple[str, ...]] = set()  # what has been warned of


class PrivateEstimator(BaseEstimator):  # type: ignore[misc]
    """The common part of :class:`PrivateClassifier` and :class:`PrivateRegressor`."""

    epsilon: float
    delta: float | None
    bounds: Bounds | None
    n_records: int | None
    method: Method
    model: str
    ledger: str | PathLike[str] | None
    budget_epsilon: float | None
    scaling: Scaling
    sample_weight_bound: float | None
    random_state: Any

    ledger_: Ledger
    settings_: list[dict[str, Any]]
    warnings_: list[str]
    delta_: float

    def __sklearn_clone__(self) -> Self:
        """A copy has the same ledger. A search is refused here: it takes an error of ``fit`` for a bad candidate."""
        refuse_uncharged_wrappers(shares_a_ledger=self.ledger is not None)
        return type(self)(**self.get_params(deep=False))

    @property
    def guarantees_(self) -> list[Guarantee | Refusal]:
        """What the fit cost, by every accountant, read off the ledger."""
        check_is_fitted(self)
        return guarantees(self.ledger_, self.delta_)

    def _fit(
        self,
        X: Floats,
        targets: NDArray[Any],
        target: Category | Number,
        taken: list[str],
        sample_weight: ArrayLike | None = None,
        class_weight: Mapping[str, float] | None = None,
    ) -> Self:
        """Train on validated arrays; ``taken`` is what was read off the data so far."""
        refuse_uncharged_wrappers(shares_a_ledger=self.ledger is not None)
        columns, records = self._columns(X, taken), self._records(X, taken)
        weights = self._weights(X, sample_weight, taken)
        schema = Schema(
            (*columns, *(column for column, _ in weights), target),
            dataset=type(self).__name__,
            records=records,
            target=TARGET,
            derived_from_private_data=bool(taken),
            scaling=self.scaling,
            sample_weight=WEIGHT if weights else None,
            class_weight=class_weight or {},
            source="as the caller stated in the constructor" if not taken else f"taken from data: {', '.join(taken)}",
        )
        if taken:
            _warn_of(taken)
        self.delta_ = default_delta(records) if self.delta is None else self.delta
        if self.budget_epsilon is not None and self.ledger is None:
            raise InputError("budget_epsilon is the total of all fits under one ledger; name it with ledger=...")
        shared = self.budget_epsilon is not None
        problem = Problem(schema, TARGET, self.epsilon, self.delta_, self.method, self.model, shared)
        cells = {**self._table(X).columns, **{column.name: values for column, values in weights}, TARGET: targets}
        data = encode(Table(cells), schema, TARGET)
        with tempfile.TemporaryDirectory() as place:
            folder = RunFolder(Path(place) / "run")
            trained = train_table(
                self._facts(problem), data, folder, checkpoints=False, randomness=self._randomness(),
                assumptions=self._assumptions(),
            )  # fmt: skip
            self._files = folder.read_files()
        self.ledger_ = trained.fitted.ledger
        self.settings_ = [setting.to_json() for setting in problem.recipe.settings]
        self.warnings_ = list(problem.recipe.warnings)
        self._predictor = trained.predictor
        return self

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the fit as a finished run's folder, for ``tacit account``, ``predict``, ``report`` and ``release``.

        The columns are called as the features were when ``fit`` saw names, otherwise x0, x1 and so on.
        """
        check_is_fitted(self)
        RunFolder(Path(folder)).write_files(self._files)

    def _facts(self, problem: Problem) -> RunFacts:
        """The run as ``tacit train`` would declare it; a ledger that was named is one that other fits may share."""
        ledger, registry = self.ledger, None
        if isinstance(ledger, RegisteredLedger):
            registry = str(Path(ledger.registry).absolute())
        named = None if ledger is None else str(Path(ledger).absolute())
        return RunFacts(problem, shared_ledger=named, shared_epsilon=self.budget_epsilon, registry=registry)

    def _assumptions(self) -> tuple[str, ...]:
        """What no fit can check. Fits under one ledger are added up there; the others only know their number."""
        said = [_TRANSFORMED]
        number = next(_fits_without_a_ledger) if self.ledger is None else 1
        if number > 1:
            said.append(
                f"this is fit {number} without a ledger in this process: fits on the same people add up; name one "
                "ledger for all of them"
            )
        return tuple(said)

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
        return tuple(map(Number, self._names(X), low.tolist(), high.tolist()))

    def _names(self, X: Floats) -> list[str]:
        named = getattr(self, "feature_names_in_", ())
        plain = len(named) == 0 or TARGET in named or WEIGHT in named
        return [f"x{number}" for number in range(X.shape[1])] if plain else [str(name) for name in named]

    def _table(self, X: Floats) -> Table:
        return Table(dict(zip(self._names(X), X.T, strict=True)))

    def _records(self, X: Floats, taken: list[str]) -> int:
        if self.n_records is None:
            taken.append("number of records")
            return len(X)
        return self.n_records

    def _weights(self, X: Floats, given: ArrayLike | None, taken: list[str]) -> list[tuple[Number, Floats]]:
        """The declared column of weights and its cells, or none. What is out of bounds counts as the nearer one."""
        if given is None:
            return []
        weights = np.asarray(given, dtype=np.float64)
        if weights.shape != (len(X),):
            raise InputError(f"sample_weight must be one number for each of {len(X)} records, found {weights.shape}")
        bound = self.sample_weight_bound
        if bound is None:
            taken.append("largest sample weight")
            bound = float(np.nan_to_num(weights, posinf=0.0).max(initial=0.0)) or 1.0
        check_positive("sample_weight_bound", bound)
        return [(Number(WEIGHT, 0.0, float(bound)), weights)]

    def _randomness(self) -> Randomness:
        if self.random_state is None:
            return Randomness()
        return Randomness.seeded(int(check_random_state(self.random_state).randint(2**31)))

    def _inputs(self, X: ArrayLike) -> Any:
        values = validate_data(self, X, reset=False, ensure_all_finite="allow-nan", dtype=np.float64)
        return encode_inputs(self._table(values), self._predictor.problem.schema, TARGET)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # a missing value counts as the middle of its bounds
        tags.non_deterministic = self.random_state is None
        return tags


def _warn_of(taken: list[str]) -> None:
    """Once in a process, at the line that called ``fit``; where warnings are errors, every time."""
    if tuple(taken) in _warned_of:
        return
    warnings.warn(
        f"{', '.join(taken)}: not declared, so read off the private data, which epsilon does not cover; declare "
        f"{', '.join(_ARGUMENTS[name] for name in taken)} in the constructor",
        UndeclaredWarning,
        stacklevel=4,
    )
    _warned_of.add(tuple(taken))


def both_bounds(name: str, bounds: Any, size: int) -> tuple[Floats, Floats]:
    """(low, high), each a number or one for each feature, as two arrays."""
    try:
        low, high = (np.broadcast_to(np.asarray(side, dtype=np.float64), (size,)) for side in bounds)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be (low, high), each a number or {size} of them, found {bounds!r}") from error
    return low, high
