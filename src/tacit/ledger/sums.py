"""The leaf of every event: a sum of clipped vectors with Gaussian noise, and several of them released together."""

import math
from dataclasses import dataclass

from tacit.errors import InputError, check_count, check_fraction, check_positive

MOST = 10**12  # steps, or copies of a vector: nobody counts further, and accountants still compute with it


@dataclass(frozen=True, slots=True)
class GaussianSumQuery:
    """A sum of clipped vectors released with Gaussian noise: the privacy tuple (S_g, s_g) of McMahan et al., section 2.

    Args:
        clip_norm: S_g, the L2 norm that no clipped vector exceeds in exact arithmetic.
        noise_stddev: s_g, the standard deviation of the noise on each coordinate of the *sum*.
        slack: what floating point may add, relative to ``clip_norm``; it is charged for.
        multiplicity: how many clipped vectors one unit can change: 1, or 2 for a record inside a microbatch.
        group: the name of the group of vectors, for the reader.
        grid: the step of the grid that vectors were rounded to before the sum, whose noise is then the discrete
            Gaussian; None for float64 sums with continuous noise.

    Example:
        >>> GaussianSumQuery(clip_norm=1.0, noise_stddev=1.3).noise_multiplier
        1.3
    """

    clip_norm: float
    noise_stddev: float
    slack: float = 0.0
    multiplicity: int = 1
    group: str = "all"
    grid: float | None = None

    def __post_init__(self) -> None:
        check_positive("clip_norm", self.clip_norm)
        check_positive("noise_stddev", self.noise_stddev)
        check_count("multiplicity", self.multiplicity, MOST)
        check_fraction("slack", self.slack)
        if not isinstance(self.group, str):
            raise InputError(f"group must be a name, found {self.group!r}")
        if self.grid is not None:
            check_positive("grid", self.grid)

    @property
    def sensitivity(self) -> float:
        """How far, in L2 norm, adding or removing one unit can move the sum."""
        return self.multiplicity * self.clip_norm * (1.0 + self.slack)

    @property
    def noise_multiplier(self) -> float:
        """z = s / sensitivity of this group alone."""
        return self.noise_stddev / self.sensitivity


def merged_noise_multiplier(queries: tuple[GaussianSumQuery, ...]) -> float:
    """The noise multiplier of all groups released together (McMahan et al., section 3).

    Dividing each group by its noise gives one query of sensitivity S* = sqrt(sum_g (S_g / s_g)^2) and noise 1, so
    z = 1 / S*.

    Example:
        >>> round(merged_noise_multiplier((GaussianSumQuery(1.0, 2.0), GaussianSumQuery(2.0, 4.0))), 6)
        1.414214
    """
    if not queries:
        raise InputError("queries must hold at least one Gaussian sum query, found none")
    return 1.0 / math.hypot(*(query.sensitivity / query.noise_stddev for query in queries))
