"""Several chains of a method one after the other, and the iterates that are kept of each. It sees releases only."""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Generic, TypeVar

from torch import Tensor

from tacit.errors import InputError, check_count
from tacit.inference import InferenceMethod, MakesPosterior, Tempered
from tacit.posteriors import Draws, Point, Posterior
from tacit.types import Vectors

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Keeping:
    """Which iterates are draws: the last ``last`` of those ``every`` steps apart that ``which`` agrees to."""

    last: int = 1
    every: int = 1
    which: Callable[[int], bool] | None = None

    def __call__(self, step: int, steps: int) -> bool:
        return (steps - 1 - step) % self.every == 0 and (self.which is None or self.which(step))

    def measures(self, step: int, steps: int) -> bool:
        """Whether a step counts for the temperature: those between draws, at least the last half of a chain."""
        span = max(self.last * self.every, steps - steps // 2)
        return steps - step <= span and (self.which is None or self.which(step))

    def check(self, steps: int) -> None:
        check_count("keep_last", self.last)
        check_count("keep_every", self.every)
        if sum(self(step, steps) for step in range(steps)) < self.last:
            raise InputError(f"cannot keep {self.last} iterates, {self.every} apart, out of {steps} steps")


class Chains(Generic[State]):
    """Chain c takes the steps from c ``steps`` on. Each begins where ``starts`` says, or where the model is."""

    def __init__(
        self,
        method: InferenceMethod[State],
        steps: int,
        keeping: Keeping,
        count: int = 1,
        starts: Sequence[Mapping[str, Tensor]] | None = None,
    ) -> None:
        check_count("chains", count)
        keeping.check(steps)
        if starts is not None and len(starts) != count:
            raise InputError(f"starts needs one set of parameters for each of {count} chains, found {len(starts)}")
        self.methods = [_of_chain(method, chain) for chain in range(count)]
        self.steps = steps
        self._keeping = keeping
        self._starts = starts
        self.step = 0
        self.state = self._begin(0)
        self.kept: list[deque[Vectors]] = [deque(maxlen=keeping.last) for _ in range(count)]
        self._heat, self._measured = 0.0, 0  # the sum of steps' temperatures, and their number

    @property
    def method(self) -> InferenceMethod[State]:
        """The method of the chain that takes the next step."""
        return self.methods[min(self.step // self.steps, len(self.methods) - 1)]

    @property
    def params(self) -> Vectors:
        return self.method.params(self.state)

    @property
    def total(self) -> int:
        return self.steps * len(self.methods)

    def noise_stddev(self, step: int, denominator: float) -> float | None:
        chain, own = divmod(step, self.steps)
        return self.methods[chain].noise_stddev(own, denominator)

    def advance(self, mean_gradient: Mapping[str, Tensor]) -> None:
        chain, own = divmod(self.step, self.steps)
        state = self.method.step(self.state, mean_gradient)
        if isinstance(self.method, Tempered) and self._keeping.measures(own, self.steps):
            self._heat += self.method.step_temperature(self.state, state)
            self._measured += 1
        if self._keeping(own, self.steps):
            self.kept[chain].append(self.method.params(state))
        self.step += 1
        self.state = self._begin(chain + 1) if own + 1 == self.steps and self.step < self.total else state

    @property
    def temperature(self) -> float | None:
        """What the moves of the chains measured; None before any did, and for a method that samples nothing."""
        return self._heat / self._measured if self._measured else None

    @property
    def content(self) -> dict[str, Any]:
        """What a checkpoint keeps; an example of it is what :meth:`restore` reads one with."""
        kept = [Draws.of(draws).vectors if draws else {} for draws in self.kept]
        heat = {"total": self._heat, "steps": self._measured}
        return {"method": type(self.method).__name__, "state": self.state, "kept": kept, "heat": heat, **self._shape}

    def restore(self, step: int, content: Mapping[str, Any]) -> None:
        for name, asked in {"method": type(self.method).__name__, **self._shape}.items():
            if content.get(name) != asked:
                raise InputError(f"the checkpoint was made with {name} {content.get(name)!r}, asked for is {asked!r}")
        self.step, self.state = step, content["state"]
        self._heat, self._measured = _heat(content["heat"])
        params = self.params
        if not _are_kept(content["kept"], len(self.kept), params):
            raise InputError("the checkpoint belongs to another model: what it kept are no draws of this one")
        for kept, vectors in zip(self.kept, content["kept"], strict=True):
            here = {name: value.to(params[name].device) for name, value in vectors.items()}
            kept.extend(Draws(here) if here else ())

    @property
    def posterior(self) -> Posterior:
        if isinstance(self.method, MakesPosterior) and len(self.methods) == 1:
            return self.method.posterior(self.state)
        draws = [draw for kept in self.kept for draw in kept] or [self.params]  # cut short before any was kept
        return Point(draws[0]) if len(draws) == 1 else Draws.of(draws, chains=len(self.kept))

    @property
    def _shape(self) -> dict[str, int]:
        return {"chains": len(self.methods), "keep_last": self._keeping.last, "keep_every": self._keeping.every}

    def _begin(self, chain: int) -> State:
        state = self.methods[chain].init()
        if self._starts is None:
            return state
        return _start_at(state, self._starts[chain])


def _of_chain(method: InferenceMethod[State], chain: int) -> InferenceMethod[State]:
    """A method that has a seed, for what it adds after the release, gets another one in every chain."""
    if chain and is_dataclass(method) and any(part.name == "seed" for part in fields(method)):
        return replace(method, seed=method.seed + chain)
    return method


def _heat(heat: Mapping[str, Any]) -> tuple[float, int]:
    total, steps = heat["total"], heat["steps"]
    if not (isinstance(total, float) and math.isfinite(total) and type(steps) is int and steps >= 0):
        raise InputError(f"a checkpoint's heat is a sum and a number of steps, found {total!r} and {steps!r}")
    return total, steps


def _start_at(state: State, start: Mapping[str, Tensor]) -> State:
    params = getattr(state, "params", None)
    if not isinstance(params, dict) or {name: value.shape for name, value in params.items()} != {
        name: value.shape for name, value in start.items()
    }:
        raise InputError("starts must name the parameters of the method's state, with their shapes")
    like = {name: start[name].detach().to(value, copy=True) for name, value in params.items()}
    return replace(state, params=like)  # type: ignore[type-var]


def _are_kept(kept: Any, chains: int, params: Vectors) -> bool:
    """Whether this is, for each chain, nothing or the stacked draws of these parameters."""
    return (
        isinstance(kept, list)
        and len(kept) == chains
        and all(isinstance(one, dict) and all(isinstance(value, Tensor) for value in one.values()) for one in kept)
        and all(set(one) == set(params) for one in kept if one)
        and all(value.shape[1:] == params[name].shape for one in kept for name, value in one.items())
    )
