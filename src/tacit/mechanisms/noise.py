"""How much Gaussian noise each group gets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tacit.errors import InputError, check_positive
from tacit.mechanisms.groups import noise_by_dimension, noise_proportional


@dataclass(frozen=True, slots=True)
class GaussianNoise:
    """Noise on the sum, given as the multiplier z of the whole release or as a standard deviation.

    Args:
        multiplier: z, the noise over the sensitivity of *all* groups released together. Whatever the groups, the
            release is accounted with exactly this number.
        stddev: the standard deviation on each coordinate of the sum; for a single group.
        allocation: how several groups share the noise out, "proportional" or "dimension"
            (McMahan et al. 2018, section 4).

    Example:
        >>> GaussianNoise(multiplier=1.1).allocate([2.0], [10])
        [2.2]
    """

    multiplier: float | None = None
    stddev: float | None = None
    allocation: Literal["proportional", "dimension"] = "proportional"

    def __post_init__(self) -> None:
        if (self.multiplier is None) == (self.stddev is None):
            raise InputError("give either the noise multiplier or the stddev, exactly one of them")
        if self.multiplier is not None:
            check_positive("noise multiplier", self.multiplier)
        else:
            check_positive("noise stddev", self.stddev)
        if self.allocation not in ("proportional", "dimension"):
            raise InputError(f"allocation must be 'proportional' or 'dimension', found {self.allocation!r}")

    def allocate(self, sensitivities: Sequence[float], dimensions: Sequence[int]) -> list[float]:
        """The standard deviation for each group, given what one unit can do to it."""
        if self.stddev is not None:
            if len(sensitivities) != 1:
                raise InputError(
                    f"stddev is for one group, found {len(sensitivities)}; give a multiplier, or noise_stddev per group"
                )
            return [self.stddev]
        assert self.multiplier is not None
        if self.allocation == "proportional":
            return noise_proportional(self.multiplier, sensitivities)
        return noise_by_dimension(self.multiplier, sensitivities, dimensions)

    def leave_room_for(self, noise_multiplier: float) -> "GaussianNoise":
        """The noise that, released together with a query of this multiplier, still gives ours.

        1/z^2 = 1/z_rest^2 + 1/z_other^2 (McMahan et al. 2018, section 3).
        """
        if self.multiplier is None:
            return self
        rest = 1 / self.multiplier**2 - 1 / noise_multiplier**2
        if rest <= 0:
            raise InputError(
                f"the extra query alone has a noise multiplier of {noise_multiplier:g}, which leaves nothing of "
                f"{self.multiplier:g}; raise its noise (count_noise)"
            )
        return GaussianNoise(multiplier=rest**-0.5, allocation=self.allocation)
