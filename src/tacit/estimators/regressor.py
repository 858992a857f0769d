"""A private, Bayesian regressor in scikit-learn's form, whose intervals hold what they say."""

from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit.estimators.private import TARGET, Bounds, PrivateEstimator, both_bounds
from tacit.posteriors import RegressionPrediction
from tacit.tables import Method, Number, Scaling
from tacit.types import Floats


class PrivateRegressor(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """A regressor whose fit is (epsilon, delta) differentially private.

    Args:
        target_bounds: (low, high) of the target; None takes them from the data. Targets outside are clamped.
        epsilon, delta, bounds, n_records, method, model, ledger, budget_epsilon: as for :class:`PrivateClassifier`.
        scaling, sample_weight_bound, random_state: likewise.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (2000, 2))
        >>> y = X[:, 0] + 0.1 * rng.normal(size=2000)
        >>> model = PrivateRegressor(1.0, bounds=(-1, 1), target_bounds=(-1.5, 1.5), n_records=2000).fit(X, y)
        >>> mean, std = model.predict(X, return_std=True)
        >>> bool(np.mean(abs(y - mean) < 1.96 * std) > 0.85)
        True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        bounds: Bounds | None = None,
        target_bounds: tuple[float, float] | None = None,
        n_records: int | None = None,
        method: Method = "sgld",
        model: str = "linear",
        ledger: str | PathLike[str] | None = None,
        budget_epsilon: float | None = None,
        scaling: Scaling = "linear",
        sample_weight_bound: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.n_records = n_records
        self.method = method
        self.model = model
        self.ledger = ledger
        self.budget_epsilon = budget_epsilon
        self.scaling = scaling
        self.sample_weight_bound = sample_weight_bound
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> "PrivateRegressor":
        """Train, once, at a cost of at most (epsilon, delta). Every further fit on the same people costs that again.

        ``sample_weight`` as for :class:`PrivateClassifier`; the spread of residuals is that of all records alike.
        """
        rows, y = validate_data(self, X, y, ensure_all_finite="allow-nan", dtype=np.float64, y_numeric=True)
        values = np.asarray(y, dtype=np.float64)
        taken: list[str] = []
        if self.target_bounds is None:
            taken.append("target bounds")
            low, high = float(values.min()), float(values.max())
            low, high = (low, high) if low < high else (low - 1, high + 1)
        else:
            low, high = (float(side[0]) for side in both_bounds("target_bounds", self.target_bounds, 1))
        self._fit(rows, values, Number(TARGET, low, high), taken, sample_weight)
        return self

    def predict(self, X: ArrayLike, return_std: bool = False) -> Floats | tuple[Floats, Floats]:
        """The mean of each record and, if asked for, the standard deviation of the whole prediction."""
        found = self._prediction(X)
        mean = found.mean.numpy()
        return (mean, found.stddev.numpy()) if return_std else mean

    def predict_interval(self, X: ArrayLike) -> tuple[Floats, Floats]:
        """The bounds between which 95 % of the probability lies."""
        low, high = self._prediction(X).interval
        return low.numpy(), high.numpy()

    def _prediction(self, X: ArrayLike) -> RegressionPrediction:
        check_is_fitted(self)
        return self._predictor.numbers(self._inputs(X))
