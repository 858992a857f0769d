"""Noise beyond what anybody can wait for: draws that are known beforehand to lie far out must be released as such.

Single-precision Box-Muller never passes 5.768, but a draw beyond that comes once in 120 million. Among the first draws
of the calls of one seed the largest of the first two thousand million was looked up; the release must show it.
"""

import numpy as np
import torch

from tacit.randomness import Randomness
from tacit.randomness.inverse_normal import to_normals

_SEED, _CALL, _DRAW = 0, 1_604_875_876, 6.466062259252364
_RANGE = 8.0
_FARTHEST = np.array([0, 1 << 63], dtype=np.uint64)  # the words of the two farthest draws


def far_draws() -> tuple[str, ...]:
    """What is wrong with the far tails: a known far draw on every path, and the end of the range."""
    broke = []
    for name, draw in (("released", _released()), ("drawn", float(_at_the_call().normals(1)[0]))):
        if not abs(abs(draw) - _DRAW) < 1e-9:
            broke.append(f"far tail: a draw that lies {_DRAW:.3f} out was {name} as {abs(draw):.3f}")
    low, high = farthest_draws()
    if not (low < -_RANGE and high > _RANGE):
        broke.append(f"range: the farthest draws are {low:.3f} and {high:.3f}, not beyond {_RANGE:g}")
    return tuple(broke)


def farthest_draws() -> tuple[float, float]:
    """The ends of the range."""
    words = torch.from_numpy(_FARTHEST.view(np.int64))
    low, high = sorted(to_normals(words, torch.empty(2, dtype=torch.float64)).tolist())
    return low, high


def _released() -> float:
    out = torch.empty(1, dtype=torch.float64)
    _at_the_call().add_noise([torch.zeros(1, dtype=torch.float64)], [1.0], 1.0, [out])
    return float(out)


def _at_the_call() -> Randomness:
    source = Randomness.seeded(_SEED)
    source._calls["noise"] = _CALL
    return source
