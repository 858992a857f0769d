"""What the user's losses compute, seen in the calls of PyTorch that they make.

Losses whose calls are those of a dense network and nothing else (:class:`Recording`) would make the same calls
again as long as nothing that they can reach by name has changed (:meth:`tacit.isolation.StateGuard.is_unchanged`). So
they need not run: the network's gradients are known as a formula (``known_networks``). Losses that draw by chance or
ask for values are never taken for one. What nobody can see (the time, files, the environment) is taken as it was when
they last ran.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._C import _functorch as functorch
from torch.nn import functional

from tacit.gradients.bookkeeping import ForwardPass
from tacit.gradients.known_networks import (
    Activation,
    Convolution,
    Front,
    GroupNorm,
    KnownNetwork,
    MaxPool,
    Stage,
    is_autocast,
)
from tacit.isolation.functions import Known
from tacit.kernels.dense import NONE, RELU, SIGMOID, TANH
from tacit.layers.convolution import geometry_of
from tacit.likelihoods import Bernoulli, Categorical, Gaussian
from tacit.losses import signature, tensors_of


class Recording(ForwardPass):
    """A forward pass that keeps every call of PyTorch that the losses make, and sees whether they draw by chance."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []
        self.versions: dict[int, int] = {}  # of outputs after the last call that is known to write into them
        self.found: KnownNetwork | None = None
        self.is_other = False

    def run(self, function: Callable[[Any], Any], batch: Any) -> Any:
        seen: list[Any] = []

        def noted(rows: Any) -> Any:
            seen.append(rows)
            seen.append(function(rows))
            return seen[1]

        inputs = tensors_of(batch)
        before = _chance_so_far(), [_version(tensor) for tensor in inputs]
        result = super().run(noted, batch)
        after = _chance_so_far(), [_version(tensor) for tensor in inputs]
        if not self.is_other and self.draws == 0 and before == after:
            self.found = _recognised(self, seen[0], seen[1])
        self.calls = []
        return result

    def watched(self, facts: Known, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        output = super().watched(facts, func, args, kwargs)
        writes = facts.writes or kwargs.get("inplace") or "out" in kwargs
        if func in _MAY_DO_NOTHING and args and output is args[0] and not writes:  # as dropout outside training
            return output
        in_place = writes and not self._is_activated_in_place(func, args, kwargs)
        if func not in _KNOWN or in_place or is_autocast():
            self.is_other, self.calls = True, []
        if not self.is_other:
            self.calls.append((func, args, kwargs, output))
            self.versions[id(output)] = _version(output)
        return output

    def _is_activated_in_place(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """ReLU(inplace=True) of what no other call has read: as if it gave a new tensor."""
        read = (one for _, given, named, _ in self.calls for one in (*given, *named.values()))
        return func in _ACTIVATIONS and "out" not in kwargs and not any(one is args[0] for one in read)


def _version(tensor: Any) -> int:
    """How often the memory of all rows was written into."""
    held = functorch.get_unwrapped(tensor) if functorch.is_batchedtensor(tensor) else tensor
    return held._version if isinstance(held, Tensor) else 0


def _chance_so_far() -> tuple[Any, ...]:
    of_numpy = np.random.get_state(legacy=False)
    state = of_numpy["state"]
    return random.getstate(), state["pos"], state["key"].tobytes(), torch.get_rng_state().numpy().tobytes()


class _OtherCallError(Exception):
    """The losses do something that a dense network does not."""


def _recognised(run: Recording, batch: Any, result: Any) -> KnownNetwork | None:
    """The network whose calls were noted, from the loss back to the inputs; None if there is any other call.

    Losses may ask for shapes and types, which are no calls: batches of any other form are left to them.
    """
    try:
        return replace(_Reading(run, tensors_of(batch)).network(result), form=signature(batch))
    except _OtherCallError:
        return None


class _Reading:
    """The noted calls by what they gave. Each is used once: one that is left over belongs to something else."""

    def __init__(self, run: Recording, leaves: Sequence[Tensor]) -> None:
        self.run = run
        self.places = {id(leaf): place for place, leaf in enumerate(leaves)}
        self.made: dict[int, list[tuple[Any, tuple[Any, ...], dict[str, Any]]]] = {}
        for func, args, kwargs, output in run.calls:  # in place: the same tensor again
            self.made.setdefault(id(output), []).append((func, args, kwargs))
        is_written = any(_version(output) != run.versions[id(output)] for *_, output in run.calls)  # by no call we saw
        if len(leaves) != 2 or is_written:
            raise _OtherCallError

    def take(self, tensor: Any, functions: Mapping[Any, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """The call that gave a tensor, if it is one of these functions, by what they stand for."""
        if not self.is_made_by(tensor, functions):
            raise _OtherCallError
        func, args, kwargs = self.made[id(tensor)].pop()
        if not self.made[id(tensor)]:
            del self.made[id(tensor)]
        return functions[func], args, kwargs

    def is_made_by(self, tensor: Any, functions: Mapping[Any, Any]) -> bool:
        return id(tensor) in self.made and self.made[id(tensor)][-1][0] in functions

    def network(self, result: Any) -> KnownNetwork:
        likelihood, outputs, targets = self._loss(result)
        if self.is_made_by(targets, _AS_FLOATS):
            _, args, kwargs = self.take(targets, _AS_FLOATS)
            (targets,) = _only(args, kwargs, 1)
        layers: list[tuple[Any, Any]] = []
        activations: list[int] = []
        while id(outputs) not in self.places:
            activation = NONE
            if self.is_made_by(outputs, _ACTIVATIONS):
                outputs, activation = self._activated(outputs)
            elif layers and self.is_made_by(outputs, _FLATTEN):
                return self._flattened(outputs, targets, layers, activations, likelihood)
            _, args, kwargs = self.take(outputs, _LINEAR)
            outputs, weight, bias = _linear_arguments(*args, **kwargs)
            layers.append((self._parameter(weight), None if bias is None else self._parameter(bias)))
            activations.append(activation)
        return self._made(outputs, targets, layers, activations, likelihood)

    def _flattened(self, outputs: Any, targets: Any, layers: Any, activations: Any, likelihood: Any) -> KnownNetwork:
        """One row of numbers, by whatever call: a record cannot see how many rows there are."""
        if outputs.dim() != 2 or len(outputs) != 1:
            raise _OtherCallError
        _, args, _ = self.take(outputs, _FLATTEN)
        inputs, front = self._front(args[0])
        return self._made(inputs, targets, layers, activations, likelihood, front, outputs.shape[1])

    def _front(self, outputs: Any) -> tuple[Any, Front]:
        """What is done to pictures, from the last call back to the inputs."""
        found: list[Stage] = []
        while id(outputs) not in self.places:
            if self.is_made_by(outputs, _ACTIVATIONS):
                outputs, activation = self._activated(outputs)
                found.append(Activation(how=activation))
                continue
            stage, args, kwargs = self.take(outputs, _STAGES)
            outputs, made = stage(self, *args, **kwargs)
            if isinstance(made, GroupNorm) and found[-1:] == [Activation(how=RELU)]:  # both in one pass
                found.pop()
                made = replace(made, activated=True)
            found.append(made)
        return outputs, tuple(reversed(found))

    def _activated(self, outputs: Any) -> tuple[Any, int]:
        """What an activation was given, and which it is."""
        activation, args, kwargs = self.take(outputs, _ACTIVATIONS)
        (given,) = _only(args, {**kwargs, "inplace": None}, 1)
        return given, activation

    def convolution(self, input: Any, weight: Any, bias: Any = None, *how: Any, **named: Any) -> tuple[Any, Stage]:
        geometry = geometry_of(weight.shape, *how, **named)
        if input.dim() != weight.dim() or any(before != behind for before, behind in geometry.padding):
            raise _OtherCallError
        names = self._parameter(weight), None if bias is None else self._parameter(bias)
        return input, Convolution(*names, tuple(weight.shape), geometry=geometry)

    def group_norm(
        self, input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any, **__: Any
    ) -> tuple[Any, Stage]:
        shape = () if weight is None else tuple(weight.shape)
        return input, GroupNorm(self._parameter(weight), self._parameter(bias), shape, groups=num_groups, eps=eps)

    def max_pool(
        self, input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False, return_indices: bool = False,
    ) -> tuple[Any, Stage]:  # fmt: skip
        if input.dim() != 4 or return_indices:
            raise _OtherCallError
        sizes = kernel_size, stride or kernel_size, padding, dilation
        return input, MaxPool(how=(*((one, one) if isinstance(one, int) else tuple(one) for one in sizes), ceil_mode))

    def _made(
        self, inputs: Any, targets: Any, layers: list[Any], activations: list[int], likelihood: Any,
        front: Front = (), width: int = 0,
    ) -> KnownNetwork:  # fmt: skip
        places = self.places.get(id(inputs)), self.places.get(id(targets))
        of_front = [one for stage in front for one in (stage.weight, stage.bias)]
        names = [one for one in (*of_front, *(one for layer in layers for one in layer)) if isinstance(one, str)]
        once, flattened = sorted(names) == sorted(self.run.names.values()), bool(width)
        if self.made or None in places or places[0] == places[1] or not layers or activations[0] != NONE or not once:
            raise _OtherCallError
        if not flattened and inputs.dim() != 2:
            raise _OtherCallError
        order = tuple(reversed(layers)), tuple(reversed(activations))
        found = KnownNetwork(*order, likelihood, flattened=flattened, front=front, width=width)
        return replace(found, leaves=places)  # type: ignore[arg-type]

    def _parameter(self, tensor: Any) -> "str | Tensor":
        """A trained one by name; one that is not as it is."""
        name = self.run.names.get(id(tensor))
        if name is not None:
            return name
        if not isinstance(tensor, nn.Parameter) or tensor.requires_grad or self.run.is_of_rows(tensor):
            raise _OtherCallError
        return tensor  # itself: .data of it may be replaced, which no version counts

    def _loss(self, result: Any) -> tuple[Any, Tensor, Tensor]:
        """The likelihood, and its outputs and targets."""
        if self.is_made_by(result, _SQUARES):  # (outputs - targets).square()
            more, args, kwargs = self.take(result, _SQUARES)
            if kwargs or args[1:] != more:
                raise _OtherCallError
            _, args, kwargs = self.take(args[0], _DIFFERENCES)
            one, other = _only(args, kwargs, 2)
            outputs, targets = (other, one) if id(one) in self.places else (one, other)
            return Gaussian(0.5**0.5), self._column(outputs), targets
        loss, args, kwargs = self.take(result, _LOSSES)
        outputs, targets = _without_reduction(args, kwargs)
        if isinstance(loss, Categorical):
            if targets.is_floating_point() or outputs.dim() != 2:
                raise _OtherCallError
            return loss, outputs, targets
        return loss, self._column(outputs), targets

    def _column(self, outputs: Tensor) -> Tensor:
        """The outputs [1, 1] whose only column this is."""
        how, args, kwargs = self.take(outputs, _COLUMNS)
        fits = args[1:] in (((slice(None), 0),), ((..., 0),)) if how == "getitem" else args[1:] in ((1,), (-1,))
        if kwargs or not fits or tuple(args[0].shape) != (1, 1):
            raise _OtherCallError
        return args[0]  # type: ignore[no-any-return]


def _only(args: tuple[Any, ...], kwargs: Mapping[str, Any], count: int) -> tuple[Any, ...]:
    """The arguments, of which there must be so many and none that says more."""
    if len(args) != count or any(value is not None for value in kwargs.values()):
        raise _OtherCallError
    return args


def _linear_arguments(input: Any, weight: Any, bias: Any = None) -> tuple[Any, Any, Any]:
    return input, weight, bias


def _without_reduction(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """Outputs and targets of a loss that is given for each record and by default in all else."""
    for name, value in kwargs.items():
        if value != _DEFAULTS.get(name, _OtherCallError):
            raise _OtherCallError
    if len(args) != 2 or "reduction" not in kwargs:
        raise _OtherCallError
    return args[0], args[1]


_T = torch.Tensor
_DEFAULTS: dict[str, Any] = {
    "reduction": "none", "weight": None, "pos_weight": None, "size_average": None, "reduce": None,
    "ignore_index": -100, "label_smoothing": 0.0,
}  # fmt: skip
_LINEAR: dict[Any, bool] = {functional.linear: True}
_ACTIVATIONS: dict[Any, int] = {
    **dict.fromkeys((functional.relu, torch.relu, _T.relu), RELU),
    **dict.fromkeys((functional.tanh, torch.tanh, _T.tanh), TANH),
    **dict.fromkeys((functional.sigmoid, torch.sigmoid, _T.sigmoid), SIGMOID),
}
_LOSSES: dict[Any, Any] = {
    functional.cross_entropy: Categorical(),
    functional.binary_cross_entropy_with_logits: Bernoulli(),
    functional.mse_loss: Gaussian(0.5**0.5),  # the square is twice the loss of variance 1
}
_SQUARES: dict[Any, tuple[Any, ...]] = {
    **dict.fromkeys((torch.square, _T.square), ()),
    **dict.fromkeys((torch.pow, _T.pow, _T.__pow__), (2,)),
}
_DIFFERENCES: dict[Any, bool] = dict.fromkeys((torch.sub, _T.sub, _T.__sub__), True)
_COLUMNS: dict[Any, str] = {_T.__getitem__: "getitem", torch.squeeze: "squeeze", _T.squeeze: "squeeze"}
_FLATTEN: dict[Any, bool] = dict.fromkeys((torch.flatten, _T.flatten, _T.view, torch.reshape, _T.reshape), True)
_STAGES: dict[Any, Any] = {
    torch.conv2d: _Reading.convolution,
    functional.group_norm: _Reading.group_norm,
    functional.max_pool2d: _Reading.max_pool,
    torch.max_pool2d: _Reading.max_pool,
}
_AS_FLOATS: dict[Any, bool] = {_T.float: True}
_MAY_DO_NOTHING = {
    *(functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d, functional.alpha_dropout),
    *(torch.dropout, _T.contiguous, _T.to, _T.float, _T.cpu, _T.type_as, *_FLATTEN),
}
_KNOWN = {*_LINEAR, *_ACTIVATIONS, *_LOSSES, *_SQUARES, *_DIFFERENCES, *_COLUMNS, *_FLATTEN, *_AS_FLOATS, *_STAGES}
