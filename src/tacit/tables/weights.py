"""How much a record counts: its own declared weight times that of its class, over the largest there can be.

A share in [0, 1] multiplies the record's loss, and so its gradient before it is clipped: a weight can only take from
what a record may do, never add to it, whatever stands in the table. What is charged does not depend on weights.
"""

import numpy as np
from numpy.typing import NDArray

from tacit.errors import InputError
from tacit.tables.columns import Number
from tacit.tables.files import Table, to_numbers
from tacit.tables.schema import Schema

Weights = NDArray[np.float32]


def weighs(schema: Schema) -> bool:
    """Whether records count differently."""
    return schema.sample_weight is not None or bool(schema.class_weight)


def record_weights(table: Table, schema: Schema, target: str, classes: NDArray[np.generic]) -> Weights | None:
    """Shares of the largest weight, one for each row; NaN where a declared weight is missing. None if all count alike.

    Args:
        classes: the number of each row's class; not looked at unless classes have weights.

    Example:
        >>> from tacit.tables.columns import Category
        >>> columns = (Number("w", 0, 4), Number("x", 0, 1), Category("ill", ("no", "yes")))
        >>> schema = Schema(columns, records=3, sample_weight="w", class_weight={"yes": 5})
        >>> people = Table({"w": np.array([4.0, 4.0, 9.0])})
        >>> [round(float(share), 2) for share in record_weights(people, schema, "ill", np.array([0, 1, 0]))]
        [0.2, 1.0, 0.2]
    """
    if not weighs(schema):
        return None
    shares = np.ones(len(table))
    if schema.sample_weight in table.columns:
        shares = _own(table, schema)
    if schema.class_weight:
        given = np.array([schema.class_weight.get(name, 1.0) for name in schema.classes(target) or ()], dtype=float)
        shares = shares * (given / given.max())[np.clip(classes.astype(np.int64), 0, len(given) - 1)]
    return shares.astype(np.float32)


def _own(table: Table, schema: Schema) -> NDArray[np.float64]:
    """Declared weights, clamped, over the largest that was declared."""
    assert schema.sample_weight is not None
    column = schema.column(schema.sample_weight)
    if not isinstance(column, Number) or column.low is None or column.high is None:
        raise InputError(f"sample_weight {schema.sample_weight!r} has no declared bounds")
    return np.asarray(np.clip(to_numbers(table.column(column.name)), column.low, column.high) / column.high)
