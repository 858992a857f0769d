"""Groups of vectors: which vectors are clipped together, and how noise is shared out.

McMahan et al. 2018, sections 2 and 4.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tacit.errors import InputError, check_positive, check_texts


@dataclass(frozen=True, slots=True)
class VectorGroup:
    """Vectors that are clipped as one.

    Args:
        names: the vectors' names, as in ``model.named_parameters()``.
        clip_norm: S_g, the bound on the norm of the (scaled) concatenation.
        noise_stddev: s_g on the sum of the scaled vectors; None leaves it to :class:`GaussianNoise`.
        scales: alpha_j per name. Given: joint clipping; vector j is divided by alpha_j before the clip, and it and
            its noise are multiplied by alpha_j afterwards.
    """

    names: tuple[str, ...]
    clip_norm: float
    noise_stddev: float | None = None
    scales: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not self.names:
            raise InputError("names must hold at least one vector, found none")
        check_texts("names", self.names)
        if len(set(self.names)) != len(self.names):
            raise InputError(f"names must be different, found {self.names!r}")
        check_positive("clip_norm", self.clip_norm)
        if self.noise_stddev is not None:
            check_positive("noise_stddev", self.noise_stddev)
        if self.scales is not None:
            _positive("scales", self.scales)
            if len(self.scales) != len(self.names):
                raise InputError(f"scales needs one number per vector ({len(self.names)}), found {len(self.scales)}")


def noise_proportional(multiplier: float, clip_norms: Sequence[float]) -> list[float]:
    """s_g = z sqrt(G) S_g: every group gets the same noise relative to its clip norm, and together they give z.

    Example:
        >>> [round(s, 4) for s in noise_proportional(1.1, [1.0, 2.0])]
        [1.5556, 3.1113]
    """
    check_positive("noise multiplier", multiplier)
    _positive("clip_norm", clip_norms)
    return [multiplier * math.sqrt(len(clip_norms)) * clip_norm for clip_norm in clip_norms]


def noise_by_dimension(multiplier: float, clip_norms: Sequence[float], dimensions: Sequence[int]) -> list[float]:
    """s_g = z sqrt(D / d_g) S_g: a large group, whose noise adds up over more coordinates, gets less of it."""
    check_positive("noise multiplier", multiplier)
    _positive("clip_norm", clip_norms)
    total = _total(dimensions, clip_norms)
    return [multiplier * math.sqrt(total / d) * clip for clip, d in zip(clip_norms, dimensions, strict=True)]


def clip_norms_by_dimension(clip_norm: float, dimensions: Sequence[int]) -> list[float]:
    """S_g = S* sqrt(d_g / D), so that the squares add up to S*^2 (McMahan et al. 2018 prints the ratio inverted)."""
    check_positive("clip_norm", clip_norm)
    total = _total(dimensions, dimensions)
    return [clip_norm * math.sqrt(dimension / total) for dimension in dimensions]


def joint_clip(norms: Sequence[float], scales: Sequence[float], clip_norm: float) -> tuple[float, list[float]]:
    """What joint clipping does to vectors of the given norms: the scaled joint norm, and the norms after the clip.

    McMahan et al. 2018, section 2: divide v_j by alpha_j, clip the concatenation to S, multiply back.

    Example:
        >>> joint_clip([3.0, 100.0], [1, 100], 5.0)[1]
        [3.0, 100.0]
    """
    _positive("scales", scales)
    check_positive("clip_norm", clip_norm)
    joint = math.hypot(*(norm / scale for norm, scale in zip(norms, scales, strict=True)))
    factor = min(1.0, clip_norm / joint) if joint > 0 else 1.0
    return joint, [norm * factor for norm in norms]


def _positive(name: str, values: Sequence[float]) -> None:
    for value in values:
        check_positive(name, value)


def _total(dimensions: Sequence[int], like: Sequence[float]) -> int:
    _positive("dimensions", dimensions)
    if len(dimensions) != len(like):
        raise InputError(f"one dimension per group is needed ({len(like)}), found {len(dimensions)}")
    return sum(dimensions)
