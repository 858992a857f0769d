"""A private, Bayesian classifier in scikit-learn's form."""

from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from tacit.errors import InputError
from tacit.estimators.private import TARGET, Bounds, PrivateEstimator
from tacit.posteriors import Prediction
from tacit.tables import Category, Method, Scaling
from tacit.tables.files import MISSING, number_text


class PrivateClassifier(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """A classifier whose fit is (epsilon, delta) differentially private, and whose probabilities average a posterior.

    Args:
        epsilon, delta: the budget of a fit; delta is by default 1e-5, or less for large tables.
        bounds: (low, high) of the features, each a number or one per feature; None takes them from the data.
        classes: all classes there can be; None takes them from the data. Records of other classes are left out.
        n_records: the declared number of records; None counts them.
        method: sgld, sghmc, bbp, dropout, vi or sgd.
        model: linear, mlp or MODULE:FACTORY.
        ledger: a file for the ledger; a second fit under it is charged on top, and refused beyond the budget.
        budget_epsilon: with ``ledger``, what all fits under it may cost together, each at most ``epsilon``; for
            OneVsRestClassifier and others that fit several times.
        scaling: "linear" keeps a linear model linear in the features: records far from the middle of the bounds weigh
            less. "norm" scales each record to norm 1.
        class_weight: how much records of each class count, {class: weight}; those not named, 1. "balanced" would read
            the classes' numbers off the private records, and is refused.
        sample_weight_bound: the largest ``sample_weight`` that ``fit`` can get; None takes it from the data.
        random_state: for tests only: a seeded run is marked in its ledger and must not be released.

    Attributes:
        classes_, guarantees_, ledger_, delta_, settings_ (each with its reason), warnings_.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (2000, 2))
        >>> model = PrivateClassifier(1.0, bounds=(-1, 1), classes=[0, 1], n_records=2000).fit(X, X[:, 0] > 0)
        >>> bool(model.score(X, X[:, 0] > 0) > 0.9), model.guarantees_[0].epsilon <= 1.0
        (True, True)
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        bounds: Bounds | None = None,
        classes: ArrayLike | None = None,
        n_records: int | None = None,
        method: Method = "sgld",
        model: str = "linear",
        ledger: str | PathLike[str] | None = None,
        budget_epsilon: float | None = None,
        scaling: Scaling = "linear",
        class_weight: Mapping[Any, float] | None = None,
        sample_weight_bound: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes
        self.n_records = n_records
        self.method = method
        self.model = model
        self.ledger = ledger
        self.budget_epsilon = budget_epsilon
        self.scaling = scaling
        self.class_weight = class_weight
        self.sample_weight_bound = sample_weight_bound
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> "PrivateClassifier":
        """Train, once, at a cost of at most (epsilon, delta). Every further fit on the same people costs that again.

        A record with ``sample_weight`` w counts w over the declared bound: weights below it cost signal, not privacy.
        """
        rows, y = validate_data(self, X, y, ensure_all_finite="allow-nan", dtype=np.float64)
        check_classification_targets(y)
        taken: list[str] = []
        if self.classes is None:
            taken.append("classes")
            self.classes_ = np.unique(y)
        else:
            self.classes_ = np.unique(np.asarray(self.classes))
        if len(self.classes_) < 2:
            raise InputError(f"a classifier needs two classes or more, found one class: {self.classes_.tolist()}")
        place = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        words = _class_names(self.classes_)
        known = np.where(self.classes_[place] == y, place, len(words))
        target, weights = Category(TARGET, words), self._class_weights(words)
        self._fit(rows, np.array([*words, ""], dtype=object)[known], target, taken, sample_weight, weights)
        return self

    def _class_weights(self, words: tuple[str, ...]) -> dict[str, float]:
        """By the classes' words."""
        given = {} if self.class_weight is None else self.class_weight
        if not isinstance(given, Mapping):
            raise InputError(
                f"class_weight must be {{class: weight}}, found {given!r}; how many records each class has is "
                "private: declare weights, or find them by tacit.ask"
            )
        by_class = dict(zip(self.classes_.tolist(), words, strict=True))
        unknown = [name for name in given if name not in by_class]
        if unknown:
            raise InputError(f"class_weight names {unknown[0]!r}; the classes are {self.classes_.tolist()}")
        return {by_class[name]: weight for name, weight in given.items()}

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities of ``classes_``, averaged over the posterior."""
        mean = self._prediction(X).mean.double().numpy()
        return np.asarray(mean / mean.sum(1, keepdims=True))

    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Logarithms of the probabilities."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each record."""
        best = self.predict_proba(X).argmax(1)  # first, because an estimator that was not fitted has no classes
        return np.asarray(self.classes_[best])

    def uncertainty(self, X: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Entropy of each prediction, and its part that is about the weights (mutual information), in nats."""
        found = self._prediction(X)
        return found.entropy.double().numpy(), found.mutual_information.double().numpy()

    def _prediction(self, X: ArrayLike) -> Prediction:
        check_is_fitted(self)
        return self._predictor.classes(self._inputs(X))


def _class_names(classes: NDArray[Any]) -> tuple[str, ...]:
    """The classes as a table would write them; their numbers if one would be taken for a missing value."""
    words = [number_text(float(name)) if classes.dtype.kind == "f" else str(name) for name in classes.tolist()]
    usable = len(set(words)) == len(words) and not MISSING.intersection(word.lower() for word in words)
    return tuple(words) if usable else tuple(map(str, range(len(words))))
