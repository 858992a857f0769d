"""From random words to normal draws in float64, by the inverse of the normal distribution function.

A 52-bit integer k gives the half-range uniform (k + 1/2) 2^-53 in (0, 1/2), whose inverse normal is the negative half;
the sign has its own bit. The plain 53-bit form gives +inf at its top value (maths.md section 10).
"""

import math

import torch
from torch import Tensor

_MANTISSA = (1 << 52) - 1


def to_normals(words: Tensor, out: Tensor) -> Tensor:
    """The normal draw of each word, into ``out``: symmetric, never infinite, reaching 8.29."""
    signs = words.view(torch.float64)
    if _ERFINV_IS_EXACT:  # 1 - 2u = 1 - (2k + 1) 2^-53 is a double: nothing is lost in the tail
        halves = out.copy_(words & _MANTISSA).mul_(-(2.0**-52)).add_(1 - 2.0**-53).erfinv_()
        return halves.copysign_(signs).mul_(-math.sqrt(2.0))
    torch.special.ndtri(out.copy_(words & _MANTISSA).add_(0.5).mul_(2.0**-53), out=out)
    return out.copysign_(signs).neg_()


def _erfinv_is_exact() -> bool:
    """Whether this build's erfinv (MKL's is) keeps its digits beyond 7 standard deviations; it is twice as fast."""
    tail = torch.tensor([1 - 2.0**-53, 1 - 3 * 2.0**-53], dtype=torch.float64)
    right = torch.tensor([8.292361075813595, 8.160707840858583], dtype=torch.float64)
    return bool(((tail.erfinv() * math.sqrt(2.0) / right - 1).abs() < 1e-13).all())


_ERFINV_IS_EXACT = _erfinv_is_exact()
