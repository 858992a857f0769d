"""Fits diffprivlib's regressions to tables that another program made; run by ``benchmarks.adassp``, not by hand.

diffprivlib 0.6.6 imports ``sklearn.tree._tree.DOUBLE``, which the locked scikit-learn (1.9.1) does not have, so that it
needs an environment of its own:

    python -m venv /tmp/diffprivlib && /tmp/diffprivlib/bin/pip install diffprivlib==0.6.6 "scikit-learn<1.5"
    python -m benchmarks.adassp --diffprivlib /tmp/diffprivlib/bin/python

Reads ``*.npz`` (x without the intercept, y, epsilon, the longest record and the kind) in the folder that it is given,
and writes ``*.npy``: the intercept and the coefficients. Bounds are those declared; nothing is tuned.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
from diffprivlib.models import LinearRegression, LogisticRegression


def fitted(x, y, epsilon, longest, kind, seed):
    if kind == "linear":
        model = LinearRegression(epsilon=epsilon, bounds_X=(-1.0, 1.0), bounds_y=(-1.0, 1.0), random_state=seed)
    else:
        model = LogisticRegression(epsilon=epsilon, data_norm=longest, max_iter=1000, random_state=seed)
    model.fit(x, y)
    return np.concatenate([np.atleast_1d(model.intercept_), np.ravel(model.coef_)])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for seed, path in enumerate(sorted(Path(sys.argv[1]).glob("*.npz"))):
        data = np.load(path)
        found = fitted(data["x"], data["y"], float(data["epsilon"]), float(data["longest"]), str(data["kind"]), seed)
        np.save(path.with_suffix(".npy"), found)
