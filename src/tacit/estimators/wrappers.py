"""scikit-learn's code that fits an estimator for the user: which of it is covered by a ledger, and which is refused.

A wrapper is seen by its place among the callers, when it copies the estimator and when it fits it; what scikit-learn
brings that is not listed here is refused. Wrappers of other packages cannot be told from a user's own code.
"""

import sys
from collections.abc import Iterator

from tacit.errors import RefusedError

# Each of these fits once, or only looks on.
_ONE_FIT = ("sklearn.base", "sklearn.compose", "sklearn.ensemble._base", "sklearn.frozen", "sklearn.pipeline",
            "sklearn.utils")  # fmt: skip
# These fit several times and learn from the records by these fits alone.
_SEVERAL_FITS = ("sklearn.ensemble._voting", "sklearn.multiclass", "sklearn.multioutput")


_INSTEAD = ", or search in one charge with tacit.tune (tacit tune TABLE)"


def refuse_uncharged_wrappers(*, shares_a_ledger: bool) -> None:
    """Refuse a wrapper that learns from private records past the ledger, or fits several times without a common one."""
    for module in _callers():
        if _is_in(module, _ONE_FIT):
            continue
        if not _is_in(module, _SEVERAL_FITS):
            raise RefusedError(
                f"{module} learns from private records in ways that no ledger is charged for (scores on folds, rows "
                "drawn repeatedly, a second model on top); fit the private estimator itself, and compare or calibrate "
                f"on public data{_INSTEAD if module.startswith('sklearn.model_selection') else ''}"
            )
        if not shares_a_ledger:
            raise RefusedError(
                f"{module} fits several times on the same people, and nothing would add these fits up; name one ledger "
                "for all of them, as in ledger='ledger.jsonl', epsilon=0.5, budget_epsilon=2"
            )


def _callers() -> Iterator[str]:
    """The modules of scikit-learn among the callers."""
    frame = sys._getframe()
    while (frame := frame.f_back) is not None:  # type: ignore[assignment]
        module = str(frame.f_globals.get("__name__"))
        if module.startswith("sklearn."):
            yield module


def _is_in(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)
