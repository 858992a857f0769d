"""Sizes for which numpy's Fourier transforms are quick. scipy.fft knows them too, but takes a while to load."""

from functools import cache

_ODD: list[int] = sorted(3**a * 5**b for a in range(30) for b in range(20))


@cache
def fast_size(least: int) -> int:
    """The smallest product of twos, threes and fives that is at least so large."""
    return min(odd << max(0, (-(-least // odd) - 1).bit_length()) for odd in _ODD if odd < 2 * least)
