"""A fact about the columns that only somebody who knows them can declare: no weighted sum of them hardly varies.

Standardise the covariates z_1 ... z_d. A weighted sum a'z has the variance a'Ca with C their correlations, and would
have |a|^2 if they were uncorrelated. Declared is the least share of it that is left, whatever the weights:

    spread = min over a of a'Ca / |a|^2 = the least eigenvalue of C

It is 1 for uncorrelated columns and 0 for shares that add up to 1. Leaving columns out never lowers it. Privacy does
not rest on it: it decides how the budget is laid out and what the releases are taken to say.
"""

from collections.abc import Sequence

import numpy as np

from tacit.regression.design import Design, covariates, parse_interaction
from tacit.tables import Schema, Table
from tacit.tables.encoding import as_declared


def spread_of(
    schema: Schema, outcome: str, table: Table, *, exposure: str | None = None, interactions: Sequence[str] = ()
) -> float:
    """The spread of a *public* table's covariates, for a declaration about a private one of the same kind.

    Of a private table it is as private as the table: nothing is charged here, and no noise added. Declare less than is
    found, half of it, so that another table of the same kind has it too.

    Example:
        >>> from tacit.tables import Flag, Number
        >>> chance = np.random.default_rng(0)
        >>> one, other = chance.random((2, 10_000))
        >>> schema = Schema((Number("a", 0, 1), Number("b", 0, 2), Flag("ill")), records=10_000)
        >>> public = Table({"a": one, "b": one + other})  # a correlation of .71
        >>> round(spread_of(schema, "ill", public), 1)
        0.3
    """
    columns = covariates(schema, outcome, exposure)
    design = Design(columns, tuple(parse_interaction(text, columns) for text in interactions))
    x = design.x(as_declared(table, schema))[:, 1:]
    centred = x - x.mean(0)
    lengths = np.linalg.norm(centred, axis=0)
    if not len(lengths) or lengths.min() <= 1e-9 * np.sqrt(len(x)):
        return 1.0 if not len(lengths) else 0.0
    standard = centred / lengths
    return float(np.clip(np.linalg.eigvalsh(standard.T @ standard)[0], 0.0, 1.0))
