"""What a known network does to its inputs before its dense layers: convolutions, group norms, activations and pools.

Each stage computes all rows at once, forwards and backwards, by the very operations of PyTorch that its graph would
call, or by a kernel that gives the same numbers; none of them joins rows. The gradients of records come from the rules
of the layers, or from the kernel that goes back through the layer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.gradients.layers.convolution import Geometry, gradients_of_convolution
from tacit.gradients.layers.normalisation import gradients_of_group_norm, of_records
from tacit.gradients.layers.whole_rows import max_pool_with_places
from tacit.gradients.record_gradients import RecordGradients
from tacit.kernels import group_norm_backward, group_norm_forward, max_pool_backward
from tacit.kernels.dense import RELU, SIGMOID, TANH

Name = str | Tensor | None  # of a parameter that is trained, one that is not, or none
Params = Mapping[str, Tensor]
_aten: Any = torch.ops.aten
ACTIVATED: dict[int, Callable[[Tensor], Tensor]] = {RELU: torch.relu, TANH: torch.tanh, SIGMOID: torch.sigmoid}


def tensor_of(one: Name, params: Params) -> Any:
    """The parameter itself, without a graph."""
    found = params[one] if isinstance(one, str) else one
    return None if found is None else found.detach()


def through(g: Tensor, a: Tensor, how: int) -> Tensor:
    """The derivative of an activation where its value is a, times g."""
    if how == RELU:
        return torch.ops.aten.threshold_backward(g, a, 0)  # type: ignore[no-any-return]
    if how == TANH:
        return g * (1.0 - a * a)
    return g * (1.0 - a) * a if how == SIGMOID else g


@dataclass(frozen=True)
class _Stage:
    """``forward`` gives the outputs and what the way back needs, ``back`` the derivative by the inputs."""

    weight: Name = None
    bias: Name = None
    shape: tuple[int, ...] = ()

    @property
    def is_trained(self) -> bool:
        return isinstance(self.weight, str) or isinstance(self.bias, str)

    def fits(self, params: Params) -> bool:
        """Whether the weight has the shape that it had: the data of a frozen one may be replaced."""
        return self.weight is None or tensor_of(self.weight, params).shape == self.shape

    def form(self, records: int, kept: tuple[Any, ...], g: Tensor) -> Any:
        return ()

    def back(self, params: Params, kept: tuple[Any, ...], g: Tensor) -> Tensor:
        raise NotImplementedError

    def form_and_back(self, params: Params, records: int, kept: tuple[Any, ...], g: Tensor, further: bool) -> Any:
        """The gradients of records, and the derivative by the inputs if one has to go ``further`` back.

        g belongs to the stage, which may write over it.
        """
        formed = self.form(records, kept, g) if self.is_trained else ()
        return formed, self.back(params, kept, g) if further else g


@dataclass(frozen=True, kw_only=True)
class Convolution(_Stage):
    geometry: Geometry

    @property
    def _how(self) -> tuple[Any, ...]:
        padding = [pad for pad, _ in self.geometry.padding]  # as much before as behind
        return self.geometry.stride, padding, self.geometry.dilation

    def forward(self, params: Params, a: Tensor) -> tuple[Tensor, tuple[Any, ...]]:
        weight, bias = tensor_of(self.weight, params), tensor_of(self.bias, params)
        return _aten.conv2d(a, weight, bias, *self._how, self.geometry.groups), (a,)

    def back(self, params: Params, kept: tuple[Any, ...], g: Tensor) -> Tensor:
        how = *self._how, False, [0] * len(self.geometry.kernel), self.geometry.groups, [True, False, False]
        found: Tensor = _aten.convolution_backward(g, *kept, tensor_of(self.weight, params), None, *how)[0]
        return found

    def form(self, records: int, kept: tuple[Any, ...], g: Tensor) -> Any:
        (x,) = kept
        return gradients_of_convolution(records, x, lambda: self.geometry, torch.Size(self.shape), False, g)


@dataclass(frozen=True, kw_only=True)
class GroupNorm(_Stage):
    """Perhaps with the ReLU behind it."""

    groups: int
    eps: float
    activated: bool = False

    def forward(self, params: Params, a: Tensor) -> tuple[Tensor, tuple[Any, ...]]:
        a, scaled = a.contiguous(), (tensor_of(self.weight, params), tensor_of(self.bias, params))
        found = group_norm_forward(a, *scaled, self.groups, self.eps, activated=self.activated)
        if found is None:
            sizes = len(a), a.shape[1], a[0, 0].numel(), self.groups
            out, mean, spread = torch.native_group_norm(a, *scaled, *sizes, self.eps)
            found = torch.relu(out) if self.activated else out, mean, spread
        return found[0], (a, *found)

    def back(self, params: Params, kept: tuple[Any, ...], g: Tensor) -> Tensor:
        sizes = len(g), g.shape[1], g[0, 0].numel(), self.groups, [True, False, False]
        a, _, mean, spread = kept
        found: Tensor = _aten.native_group_norm_backward(g, a, mean, spread, tensor_of(self.weight, params), *sizes)[0]
        return found

    def form(self, records: int, kept: tuple[Any, ...], g: Tensor) -> Any:
        return gradients_of_group_norm(records, kept[0], self.groups, self.eps, g)

    def form_and_back(self, params: Params, records: int, kept: tuple[Any, ...], g: Tensor, further: bool) -> Any:
        a, out, mean, spread = kept
        g, weight, bias = g.contiguous(), tensor_of(self.weight, params), tensor_of(self.bias, params)
        found = group_norm_backward(a, weight, bias, mean, spread, g, activated=self.activated)
        if found is not None:
            return [of_records(records, rows) for rows in found], g
        g = through(g, out, RELU) if self.activated else g
        return super().form_and_back(params, records, kept, g, further)


@dataclass(frozen=True, kw_only=True)
class Activation(_Stage):
    how: int

    def forward(self, params: Params, a: Tensor) -> tuple[Tensor, tuple[Any, ...]]:
        out = ACTIVATED[self.how](a)
        return out, (out,)

    def back(self, params: Params, kept: tuple[Any, ...], g: Tensor) -> Tensor:
        (out,) = kept
        return through(g, out, self.how)


@dataclass(frozen=True, kw_only=True)
class MaxPool(_Stage):
    how: tuple[Any, ...]  # kernel, stride, padding, dilation, whether parts of a window count

    def forward(self, params: Params, a: Tensor) -> tuple[Tensor, tuple[Any, ...]]:
        out, places = max_pool_with_places(a, *self.how)
        return out, (a, places)

    def back(self, params: Params, kept: tuple[Any, ...], g: Tensor) -> Tensor:
        a, places = kept
        found = max_pool_backward(g, places, a.shape)
        return _aten.max_pool2d_with_indices_backward(g, a, *self.how, places) if found is None else found


Stage = Convolution | GroupNorm | Activation | MaxPool
Front = tuple[Stage, ...]


def through_all(front: Front, params: Params, a: Tensor) -> tuple[Tensor, list[tuple[Any, ...]]]:
    """The outputs of the last stage, and what each kept."""
    kept = []
    for stage in front:
        a, of_stage = stage.forward(params, a)
        kept.append(of_stage)
    return a, kept


def back_through_all(
    front: Front, params: Params, records: int, kept: list[tuple[Any, ...]], g: Tensor
) -> dict[str, RecordGradients]:
    """From the last stage back to the first that is trained; what each of them kept is free again after it."""
    found: dict[str, RecordGradients] = {}
    first = [stage.is_trained for stage in front].index(True)
    for place in range(len(front) - 1, first - 1, -1):
        stage, of_stage = front[place], kept.pop()
        formed, g = stage.form_and_back(params, records, of_stage, g, place > first)
        found |= {
            name: part for name, part in zip((stage.weight, stage.bias), formed, strict=False) if isinstance(name, str)
        }
    return found
