"""The leakage check: do members and held-out records look different to the trained model?

Triastcyn and Faltings 2020, section 5.2.

Distances between gradients of members, and between those of held-out records, are compared by Welch's t-test (their
means) and Levene's test (their spreads). A difference is a warning. That none is found proves nothing: it is no bound.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import InputError

_LEAST_RECORDS = 10


@dataclass(frozen=True, slots=True, eq=False)
class LeakageCheck:
    """Two samples of distances, and the p-values of the hypotheses that they have one mean and one spread. Private."""

    members: NDArray[np.float64]
    held_out: NDArray[np.float64]
    welch: float
    levene: float

    def differs(self, level: float = 0.01) -> bool:
        """Whether either test finds a difference, with Bonferroni's correction for there being two."""
        return min(self.welch, self.levene) < level / 2

    def sentence(self, level: float = 0.01) -> str:
        if self.differs(level):
            return f"members look different from held-out records (Welch {self.welch:.2g}, Levene {self.levene:.2g})"
        return (
            f"no difference was found (Welch {self.welch:.2g}, Levene {self.levene:.2g}); that is no bound, "
            "only the accountants give one"
        )


def leakage_check(members: ArrayLike, held_out: ArrayLike) -> LeakageCheck:
    """Compare the gradient distances of members with those of records that were never trained on.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> leakage_check(rng.normal(1, 0.1, 500), rng.normal(2, 0.1, 500)).differs()
        True
    """
    from scipy.stats import levene, ttest_ind  # half a second that other evaluations need not wait for

    try:
        one, other = (np.asarray(values, dtype=float).ravel() for values in (members, held_out))
    except (TypeError, ValueError) as error:
        raise InputError(f"members and held_out must be numbers: {error}") from error
    for name, values in (("members", one), ("held_out", other)):
        if len(values) < _LEAST_RECORDS or not np.isfinite(values).all():
            raise InputError(f"{name} needs at least {_LEAST_RECORDS} finite distances, found {len(values)}")
    means = ttest_ind(one, other, equal_var=False).pvalue
    spreads = levene(one, other).pvalue
    # samples without any spread leave nothing to test: equal, or plainly different
    alike = 1.0 if np.array_equal(np.unique(one), np.unique(other)) else 0.0
    return LeakageCheck(one, other, _number(means, alike), _number(spreads, 1.0))


def draw_leakage(axes: Any, check: LeakageCheck) -> None:
    """The two histograms side by side (Triastcyn and Faltings, figure 2)."""
    bins = np.histogram_bin_edges(np.concatenate([check.members, check.held_out]), bins=40)
    axes.hist(check.members, bins, density=True, alpha=0.6, color="#1f5a99", label="members")
    axes.hist(check.held_out, bins, density=True, alpha=0.5, color="#c0392b", label="held out")
    axes.set(xlabel="distance between two gradients", ylabel="density", title=check.sentence())
    axes.legend(frameon=False)


def _number(value: float, otherwise: float) -> float:
    return otherwise if np.isnan(value) else float(value)
