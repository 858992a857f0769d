"""Numbers as text. A bound is rounded upwards."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal


def round_up(value: float, decimals: int = 3) -> str:
    """A bound, never rounded below what it is.

    Example:
        >>> round_up(0.50001), round_up(0.5), round_up(float("inf"))
        ('0.501', '0.500', 'no limit')
    """
    if not math.isfinite(value):
        return "no limit"
    if value >= 1e6:
        return f"{value:.3e}"
    return str(Decimal(repr(value)).quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_CEILING))


def round_down(value: float, decimals: int = 4) -> str:
    """A lower bound, never rounded above what it is.

    Example:
        >>> round_down(0.999971)
        '0.9999'
    """
    return str(Decimal(repr(value)).quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_FLOOR))


def in_full(value: float) -> str:
    """A small number written out while that can still be read.

    Example:
        >>> in_full(1e-5), in_full(2.5e-12)
        ('0.00001', '2.5e-12')
    """
    return f"{Decimal(repr(value)):f}" if value >= 1e-7 else f"{value:g}".replace("e-0", "e-")


def percent_up(value: float, decimals: int = 1) -> str:
    """A probability that is a bound, as percent.

    Example:
        >>> percent_up(0.56231)
        '56.3 %'
    """
    return f"{round_up(100 * value - 1e-9 if value < 1 else 100.0, decimals)} %"


def percent(value: float, decimals: int = 1) -> str:
    return f"{100 * value:.{decimals}f} %"


def one_in(chance: float) -> str:
    """A small chance as people say it.

    Example:
        >>> one_in(1e-5)
        '1 in 100,000'
    """
    return f"1 in {round(1 / chance):,}"


def join_names(items: tuple[str, ...], most: int = 40) -> str:
    """Names in a row, and how many more there are."""
    shown = ", ".join(items[:most])
    return shown if len(items) <= most else f"{shown} and {len(items) - most:,} more"
