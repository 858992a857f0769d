"""Networks known as a formula: their gradients in a few calls, without a line of the user's being run.

A record with outputs z = W a + b of a layer has the gradient g a^T by W and g by b, where g is the derivative of its
loss by z. A linear layer under a likelihood of ours is known as such a network, and the user's own losses are if they
were seen to be one (``recognition``), perhaps behind convolutions, group norms, activations and pools. There is nothing
to keep apart, to watch or to compare then; all other losses take the general way, which gives the same numbers
(tests/gradients/test_known_networks.py). Each stage computes all rows at once, forwards and backwards, by the very
operations of PyTorch that its graph would call, or by a kernel that gives the same numbers; none of them joins rows.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as every_module

from tacit.freed_memory import keep_freed_memory
from tacit.isolation import StateGuard
from tacit.kernels import group_norm_backward, group_norm_forward, library, max_pool, max_pool_backward
from tacit.kernels.dense import NONE, RELU, SIGMOID, TANH
from tacit.layers.convolution import Geometry, gradients_of_convolution
from tacit.layers.normalisation import gradients_of_group_norm, of_records
from tacit.layers.record_gradients import RecordGradients, outer_products, shifts
from tacit.layers.whole_rows import POOLED_BY_KERNEL
from tacit.likelihoods import Bernoulli, Categorical, Counts, Gaussian, Weighed
from tacit.losses import Fill, Losses, ModelLosses, Places, signature

LIKELIHOODS = (Bernoulli, Categorical, Gaussian, Counts)
_IGNORED = -100  # the class that says nothing, as in cross_entropy
_LOOKS = 32  # in a row without use ...
_OF_OTHERS = 8  # ... of which one that saw a call of another kind counts for so many
_MOST_LEAVES = 64
_aten: Any = torch.ops.aten
Name = str | Tensor | None  # of a parameter that is trained, one that is not, or none
Params = Mapping[str, Tensor]
ACTIVATED: dict[int, Callable[[Tensor], Tensor]] = {RELU: torch.relu, TANH: torch.tanh, SIGMOID: torch.sigmoid}


def tensor_of(one: Name, params: Params) -> Any:
    """The parameter itself, without a graph."""
    found = params[one] if isinstance(one, str) else one
    return None if found is None else found.detach()


def through(g: Tensor, a: Tensor, how: int) -> Tensor:
    """The derivative of an activation where its value is a, times g."""
    if how == RELU:
        return _aten.threshold_backward(g, a, 0)  # type: ignore[no-any-return]
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
        return g

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
        found = max_pool(a, *self.how) if a.numel() >= POOLED_BY_KERNEL else None
        out, places = found or _aten.max_pool2d_with_indices(a, *self.how)
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


# ---- dense layers, and the loss ----


def values(layers: Sequence[Any], activations: Sequence[int], x: Tensor) -> list[Tensor]:
    """The inputs of every layer, and the outputs of the last."""
    found = [x]
    for (weight, bias), how in zip(layers, activations, strict=True):
        value = functional.linear(found[-1], weight, bias)
        found.append(ACTIVATED[how](value) if how in ACTIVATED else value)
    return found


def derivatives(layers: Sequence[Any], activations: Sequence[int], inputs: list[Tensor], g: Tensor) -> list[Tensor]:
    """Of each loss by the outputs of every layer, before its activation."""
    found = [g]
    for layer in range(len(layers) - 1, 0, -1):
        found.append(through(found[-1] @ layers[layer][0], inputs[layer], activations[layer - 1]))
    return found[::-1]


def by_outputs(likelihood: "Bernoulli | Categorical | Gaussian | Counts", outputs: Tensor, of: "Arguments") -> Tensor:
    """The derivative of each loss by the outputs; where the target is no class it is zero."""
    if isinstance(likelihood, Categorical):  # probabilities, less 1 for the target
        classes, found = of.targets.long(), outputs.softmax(1)
        if of.are_classes:
            return found.scatter_(1, classes[:, None], -1.0, reduce="add")
        known = (classes >= 0) & (classes < outputs.shape[1])
        found.scatter_(1, (classes * known)[:, None], -1.0, reduce="add")
        return torch.where(known[:, None], found, 0.0)
    numbers = of.targets.to(outputs.dtype)[:, None]
    match likelihood:
        case Bernoulli():
            return outputs.sigmoid().sub_(numbers)
        case Gaussian():
            return (outputs - numbers).div_(likelihood.stddev**2)
        case Counts():
            return likelihood.rate(outputs) / likelihood.half - (1 + numbers)


@dataclass(frozen=True, slots=True)
class KnownNetwork:
    """A dense network under a loss of its outputs, perhaps behind stages that look at pictures.

    Args:
        layers: names of weight and bias among the parameters, or the tensor itself where it is not trained.
        leaves: where inputs and targets lie among the tensors of a batch.
        flattened: whether inputs are flattened first.
        front: what is done to inputs before they are flattened, to ``width`` numbers each.
        form: of the batches that the losses were seen with (``tacit.losses.signature``), if they were.
    """

    layers: tuple[tuple["str | Tensor", "str | Tensor | None"], ...]
    activations: tuple[int, ...]
    likelihood: Bernoulli | Categorical | Gaussian | Counts
    weighed: bool = False
    leaves: tuple[int, int] = (0, 1)
    flattened: bool = False
    front: Front = ()
    width: int = 0
    form: object = None

    def arguments(self, params: Mapping[str, Tensor], batch: Any) -> "Arguments | None":
        """What the formula takes of a batch; None if it is not rows of floats with one target each."""
        parts = list(batch.values()) if isinstance(batch, dict) else batch if isinstance(batch, tuple | list) else ()
        if len(parts) != 2 or not all(type(part) is Tensor and part.dim() for part in parts):
            return None
        if self.form is not None and self.form != signature(batch):
            return None
        inputs, targets = parts[self.leaves[0]], parts[self.leaves[1]]
        layers = [(tensor_of(weight, params), tensor_of(bias, params)) for weight, bias in self.layers]
        weight = layers[0][0]
        inputs = inputs.flatten(1) if self.flattened and not self.front else inputs
        plain = inputs.dtype == weight.dtype == torch.float32 and inputs.device == targets.device == weight.device
        if not plain or targets.is_complex() or targets.dim() != 1:
            return None
        if not all(stage.fits(params) for stage in self.front):
            return None
        width = self.width or inputs.shape[-1]
        for weight, bias in layers:  # of frozen ones, whose data may be replaced, nobody else asks
            if weight.dim() != 2 or weight.shape[1] != width or (bias is not None and bias.shape != weight.shape[:1]):
                return None
            width = weight.shape[0]
        fits = inputs.shape[0] == targets.shape[0] and (inputs.dim() == 2 or self.front)
        return Arguments(params, layers, inputs, targets) if fits else None

    def by_outputs(self, outputs: Tensor, given: "Arguments") -> Tensor:
        """The derivative of each loss by the outputs."""
        found = by_outputs(self.likelihood, outputs, given)
        return found * Weighed(self.likelihood).weights(given.inputs)[:, None] if self.weighed else found

    def multiple(self, given: "Arguments") -> int:
        """Of rows: with it no operation of PyTorch treats the last of them in another way (isolation/rows.py).

        ReLU and softmax never do, and products do where one of the sides is a vector.
        """
        activations = {*self.activations, *[stage.how for stage in self.front if isinstance(stage, Activation)]}
        if not activations <= {NONE, RELU} or not isinstance(self.likelihood, Categorical) or self.weighed:
            return math.lcm(16, 32 * torch.get_num_threads())
        return 16 if any(1 in weight.shape for weight, _ in given.layers) else 1

    def faults(self, given: "Arguments") -> int:
        """How many records have a target that is no class, and add nothing."""
        if not isinstance(self.likelihood, Categorical) or given.are_classes:
            return 0
        targets, classes = given.targets, len(given.layers[-1][0])
        known = ((targets >= 0) & (targets < classes)) | (targets == _IGNORED)
        return len(targets) - int(known.sum())

    def gradients(self, given: "Arguments", records: int) -> dict[str, RecordGradients]:
        """Of all records of a batch by PyTorch. The loss of a record is the mean over its rows."""
        with torch.no_grad():
            a, kept = through_all(self.front, given.params, given.inputs)
            *inputs, outputs = values(given.layers, self.activations, a.flatten(1) if self.front else a)
            g = self.by_outputs(outputs, given)
            if records < len(outputs):
                g *= records / len(outputs)
            by_layer = derivatives(given.layers, self.activations, inputs, g)
            found: dict[str, RecordGradients] = {}
            for (weight, bias), x, g in zip(self.layers, inputs, by_layer, strict=True):
                if isinstance(weight, str):
                    found[weight] = outer_products(records, x, g)
                if isinstance(bias, str):
                    found[bias] = shifts(records, g)
            if any(stage.is_trained for stage in self.front):
                g = (by_layer[0] @ given.layers[0][0]).view(a.shape)
                found |= back_through_all(self.front, given.params, records, kept, g)
        return found


@dataclass(frozen=True)
class Arguments:
    """All parameters, weight and bias of each layer, inputs [records, ...] and targets [records]."""

    params: Mapping[str, Tensor]
    layers: list[tuple[Tensor, Tensor | None]]
    inputs: Tensor
    targets: Tensor

    def take(self, rows: Places) -> "Arguments":
        """Of some rows; the very tensors, if it is all of them in their order."""
        if np.array_equal(rows, np.arange(len(self.inputs))):
            return self
        index = torch.from_numpy(rows)
        return replace(self, inputs=self.inputs[index], targets=self.targets[index])

    @cached_property
    def are_classes(self) -> bool:
        """Whether every target is one of as many classes as there are outputs."""
        if not self.targets.numel():
            return True
        least, most = torch.aminmax(self.targets)
        return least.item() >= 0 and most.item() < len(self.layers[-1][0])


def linear_model(losses: Losses, params: Mapping[str, Tensor]) -> KnownNetwork | None:
    """A plain linear layer under a likelihood of ours; None for all else.

    A class derived from one of them, a hook or a forward of somebody's own could do anything.
    """
    if type(losses) is not ModelLosses or type(losses.model) is not nn.Linear or not _is_untouched(losses.model):
        return None
    likelihood, weight = losses.user_losses, params.get("weight")
    weighed = type(likelihood) is Weighed
    likelihood = likelihood.likelihood if isinstance(likelihood, Weighed) else likelihood
    if weight is None or not isinstance(likelihood, LIKELIHOODS) or type(likelihood) not in LIKELIHOODS:
        return None
    if not (len(weight) > 1 if isinstance(likelihood, Categorical) else len(weight) == 1):
        return None
    bias = "bias" if "bias" in params else losses.model.bias
    return KnownNetwork((("weight", bias),), (NONE,), likelihood, weighed)


def _is_untouched(layer: nn.Linear) -> bool:
    """Whether calling the layer is nothing but ``nn.Linear.forward``."""
    own = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return "forward" not in vars(layer) and not any(own) and not are_hooked(layer.parameters())


def is_autocast() -> bool:
    return torch.is_autocast_enabled("cpu")


def are_hooked(parameters: Any) -> bool:
    """Whether calls of all modules, or the gradients of these parameters, pass through somebody's hooks."""
    of = every_module
    every = (
        of._global_forward_hooks,
        of._global_forward_pre_hooks,
        of._global_backward_hooks,
        of._global_backward_pre_hooks,
    )
    return any(every) or any(parameter._backward_hooks for parameter in parameters)


# ---- what was seen of some losses ----


@dataclass(slots=True)
class Remembered:
    """What the losses were seen to be when they last ran, and whether it is worth looking again."""

    model: KnownNetwork | None = None
    guard: StateGuard | None = None
    block: int = 0
    looks: int = 0
    is_known_as_other: bool = False  # these losses are no such network, and are not asked again

    def is_worth_a_look(self, guard: StateGuard | None, leaves: Mapping[str, Tensor]) -> bool:
        """Losses that were no such network several times, or whose surroundings change at every step, are not."""
        if guard is None:
            return False
        self.is_known_as_other = self.looks >= _LOOKS or len(leaves) > _MOST_LEAVES
        return not self.is_known_as_other

    def note(self, found: KnownNetwork | None, guard: StateGuard | None, *, is_other: bool) -> None:
        """What was seen in the last run, in the block of the guard that is open now."""
        self.model, self.guard, self.block = found, guard, 0 if guard is None else guard.blocks
        self.looks += _OF_OTHERS if is_other else 1

    def confirm(self, guard: StateGuard | None) -> None:
        """The losses ran once more, in a block that followed at once, and gave the same."""
        if guard is not None and guard is self.guard and guard.blocks == self.block + 1:
            self.block += 1

    def still(self, guard: StateGuard | None, params: Mapping[str, Tensor]) -> KnownNetwork | None:
        """The network, if the losses would do now what they did then."""
        if self.model is None or guard is None or guard is not self.guard or guard.blocks != self.block:
            return None
        if are_hooked(params.values()):
            return None
        if is_autocast() or torch._C._len_torch_function_stack() or not guard.is_unchanged(params.values()):
            return None
        self.looks = 0
        return self.model


_learned: "WeakKeyDictionary[Any, Learned]" = WeakKeyDictionary()


@dataclass(slots=True)
class Learned:
    """Of some losses: whether they write into tensors that they make, for which forms of records they ask about values,
    how many rows they need, what they compute."""

    fresh: bool = False
    asking: set[object] = field(default_factory=set)
    fill: Fill = field(default_factory=Fill)
    seen: Remembered = field(default_factory=Remembered)


def learned(losses: Losses) -> Learned:
    found = _learned.get(losses)
    if found is None:
        keep_freed_memory()
        library()  # may have to be compiled, and kept in a file, before the losses run and nothing may be written
        found = _learned[losses] = Learned()
    return found
