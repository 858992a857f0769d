"""What the samplers share: the noise that a released gradient carries, and the noise that a sampler adds on top.

A mean gradient released with noise of standard deviation m = s / B on each coordinate gives the gradient of the whole
potential, U(w) = sum of losses + r(w), with noise of variance V = (n m)^2. Noise on top is added after the release, so
it is post-processing, and any generator will do for it: nothing about a record depends on its quality.

V is not all the noise there is: drawing records adds (1 - q) / q times the sum of squared clipped gradients, which is
private. But the moves of a chain are releases, and they show all of it. In equilibrium the distance of w from its mean
m is on average what it was a step ago, E |w + move - m|^2 = E |w - m|^2, so that

    E (w - m) . U'(w) = E |move|^2 / (2 eta)             (SGLD; with friction alpha: (1 - alpha / 2) E |v|^2 / eta)

because no noise depends on w. The left side is d times the temperature of the chain (on a Gaussian, trace(Cov H)): the
mean square of the moves measures it, with the noise of sampling and the error of finite steps, and costs nothing. U is
the potential of the *clipped* losses.
"""

import math
from collections.abc import Mapping
from typing import Literal

from torch import Tensor

from tacit.errors import InputError, check_count, check_positive
from tacit.inference.step_sizes import StepSize, as_step_size
from tacit.posteriors.normals import check_seed, standard_normals

NoiseFrom = Literal["asked", "planned"]


def check_sampler(
    step_size: float | StepSize, dataset_size: int, temperature: float | None, noise: NoiseFrom, seed: int
) -> None:
    """What every sampler refuses."""
    as_step_size(step_size)
    check_count("dataset_size", dataset_size)
    if temperature is not None:
        check_positive("temperature", temperature)
    if noise not in ("asked", "planned"):
        raise InputError(f"noise must be 'asked' or 'planned', found {noise!r}")
    check_seed(seed)


def gradient_variances(mean_noise: Mapping[str, float] | None, dataset_size: int) -> dict[str, float]:
    """V = (n m)^2 for each vector, from the noise that the plan puts on its mean gradient."""
    if mean_noise is None:
        raise InputError("noise='planned' needs to know the plan's noise: run by tacit.train, or give mean_noise")
    return {name: (dataset_size * stddev) ** 2 for name, stddev in mean_noise.items()}


def stable_step(step_size: float, temperature: float, variances: Mapping[str, float]) -> float:
    """min(step size, 2 temperature / V): a larger step would turn the plan's noise into more than the temperature's.

    With s = z C and B = q n the second is 2 temperature q^2 / (z C)^2.

    Example:
        >>> stable_step(0.01, 1.0, {"w": 400.0})
        0.005
    """
    largest = max(variances.values(), default=0.0)
    return step_size if largest * step_size <= 2 * temperature else 2 * temperature / largest


def stable_logistic_step(dataset_size: int, prior_stddev: float) -> float:
    """1 / (n / 4 + 1 / prior variance): a stable step for logistic regression on records of norm at most 1.

    The logistic loss bends by at most 1/4, so that is the inverse of a bound on the curvature of U.

    Example:
        >>> stable_logistic_step(396, 1.0)
        0.01
    """
    check_count("dataset_size", dataset_size)
    check_positive("prior_stddev", prior_stddev)
    return 1 / (dataset_size / 4 + prior_stddev**-2)


def add_normals(
    vectors: Mapping[str, Tensor], variances: Mapping[str, float | Tensor], seed: int, step: int
) -> dict[str, Tensor]:
    """Independent normal noise of these variances on top of each vector, a function of the seed and the step only.

    So nothing has to be kept for it: a run that goes on from a checkpoint adds what it would have added. Rounding may
    leave a variance just below 0, which counts as 0.
    """
    noise = standard_normals(seed, step, vectors)
    return {name: value + _root(variances[name]) * noise[name] for name, value in vectors.items()}


def mean_square(vectors: Mapping[str, Tensor]) -> float:
    """Over all coordinates of all vectors."""
    total = sum(float(value.double().square().sum()) for value in vectors.values())
    return total / sum(value.numel() for value in vectors.values())


def _root(variance: float | Tensor) -> float | Tensor:
    return variance.clamp(min=0).sqrt() if isinstance(variance, Tensor) else math.sqrt(max(0.0, variance))
