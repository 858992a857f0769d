"""Numbers that every parser of JSON reads: there, infinity is null."""

import math
from typing import Any


def finite(value: Any) -> Any:
    """The same value with null in place of what is infinite or no number.

    Example:
        >>> finite({"epsilon": float("inf"), "bracket": (0.5, 1.0)})
        {'epsilon': None, 'bracket': [0.5, 1.0]}
    """
    match value:
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {name: finite(item) for name, item in value.items()}
        case list() | tuple():
            return [finite(item) for item in value]
        case _:
            return value
