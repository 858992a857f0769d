"""What every inference method is: a start, losses that see data, the noise it asks for, and a step without data."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol, Self, TypeVar, runtime_checkable

from torch import Tensor

from tacit.losses import Losses
from tacit.posteriors import Posterior
from tacit.types import Vectors

State = TypeVar("State")


class InferenceMethod(Protocol[State]):
    """A method knows nothing of privacy: only ``losses`` sees data, and ``step`` gets a released mean gradient."""

    @property
    def losses(self) -> Losses:
        """``losses(params, batch)``: one loss per record, as a function of the method's own parameters."""

    def init(self) -> State:
        """The state before the first step."""

    def params(self, state: State) -> Vectors:
        """The parameters at which the next gradient is taken."""

    def noise_stddev(self, step: int, denominator: float) -> float | None:
        """The noise standard deviation, on the *sum* of gradients, that the method asks for; None takes the plan's."""

    def step(self, state: State, mean_gradient: Mapping[str, Tensor]) -> State:
        """Move on, given the noisy sum over the denominator. Prior gradients are added here: they need no data."""


@runtime_checkable
class FollowsPlannedNoise(Protocol):
    """A method whose dynamics follow the plan's noise, a public number that it gets before the run."""

    @property
    def noise(self) -> Literal["asked", "planned"]: ...

    def with_mean_noise(self, mean_noise: Mapping[str, float]) -> Self:
        """The same method, knowing the noise on each coordinate of each vector's mean gradient."""


@runtime_checkable
class Tempered(Protocol):
    """A method that samples a posterior at a temperature which the noise decides."""

    def effective_temperature(self, noise_stddev: float, denominator: float, step: int = 0) -> float:
        """The temperature at this step, if the sum has noise of this size and no other: a plan's, before a run."""

    def step_temperature(self, before: Any, after: Any) -> float:
        """What a step from one state to the next shows of the temperature; the mean over a chain measures it.

        It holds all noise, that of drawing records too, and the error of finite steps. States are made of releases.
        """


@runtime_checkable
class MakesPosterior(Protocol):
    """A method whose state describes a whole posterior; the others leave their iterates as draws."""

    def posterior(self, state: Any) -> Posterior:
        """What has been learned by then."""
