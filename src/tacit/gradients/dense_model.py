"""Dense networks, as tables need them, and those behind convolutions: their gradients by formula, in a few calls.

A record with outputs z = W a + b of a layer has the gradient g a^T by W and g by b, where g is the derivative of its
loss by z. A linear layer under a likelihood of ours is known as such a network, and the user's own losses are if they
were seen to be one (``recognition``). No line of the user's runs, so that there is nothing to keep apart, to watch or
to compare; all other losses take the general way, which gives the same numbers (tests/gradients/test_dense_model.py).

Of a small network the compiled kernel computes every record by itself; without it, and of a large one, PyTorch
computes all of them (``dense_rows``).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules import module as every_module

from tacit.gradients.dense_rows import PlainRows, derivatives, values
from tacit.gradients.layers.linear import outer_products, shifts
from tacit.gradients.record_gradients import RecordGradients
from tacit.gradients.stages import Activation, Front, back_through_all, tensor_of, through_all
from tacit.isolation import Places
from tacit.isolation.batches import signature
from tacit.kernels import dense_rows
from tacit.kernels.dense import CLASSES, COUNT, NONE, NUMBER, RELU, YES_OR_NO, DenseRows, DenseShape
from tacit.likelihoods import Bernoulli, Categorical, Counts, Gaussian, Weighed
from tacit.losses import Losses, ModelLosses
from tacit.mechanisms import GaussianSumMechanism

LIKELIHOODS = (Bernoulli, Categorical, Gaussian, Counts)
_IGNORED = -100  # the class that says nothing, as in cross_entropy
_MOST_WEIGHTS = 1 << 14  # more of them are multiplied faster as matrices of many records


@dataclass(frozen=True, slots=True)
class DenseModel:
    """A dense network under a loss of its outputs, perhaps behind stages that look at pictures.

    Args:
        layers: names of weight and bias among the parameters, or the tensor itself where it is not trained.
        leaves: where inputs and targets lie among the tensors of a batch.
        flattened: whether inputs are flattened first.
        front: what is done to inputs before they are flattened, to ``width`` numbers each.
        form: of the batches that the losses were seen with (``tacit.isolation.batches.signature``), if they were.
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

    def rows(self, given: "Arguments", mechanism: GaussianSumMechanism) -> DenseRows | PlainRows | None:
        """All records of a batch, by the compiled kernel with their sum where the clip is plain; None if there are many
        weights, or pictures."""
        if self.front:
            return None
        names = tuple(mechanism.shapes)
        columns = tuple(names.index(one) if isinstance(one, str) else -1 for layer in self.layers for one in layer)
        widths = (given.inputs.shape[1], *(weight.shape[0] for weight, _ in given.layers))
        shape = _shape(widths, self.activations, columns, *_kind(self.likelihood), self.weighed)
        if shape.weights > _MOST_WEIGHTS:
            return None
        targets = given.targets.long() if shape.kind == CLASSES else given.targets.float()
        found = dense_rows(shape, given.layers, given.inputs, targets, mechanism.plain_clip)
        if found is not None or not len(targets) or not targets.is_cpu:
            return found
        network = given.layers, self.activations, columns, self.by_outputs, given.inputs, targets
        return PlainRows(*network, multiple=self.multiple(given), faults=self.faults(given))

    def by_outputs(self, outputs: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """The derivative of each loss by the outputs."""
        found = self.likelihood.by_outputs(outputs, targets)
        return found * Weighed(self.likelihood).weights(inputs)[:, None] if self.weighed else found

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
        if not isinstance(self.likelihood, Categorical):
            return 0
        targets, classes = given.targets, len(given.layers[-1][0])
        if self.likelihood.are_all_classes(targets, classes):
            return 0
        known = ((targets >= 0) & (targets < classes)) | (targets == _IGNORED)
        return len(targets) - int(known.sum())

    def gradients(self, given: "Arguments", records: int) -> dict[str, RecordGradients]:
        """Of all records of a batch by PyTorch. The loss of a record is the mean over its rows."""
        with torch.no_grad():
            a, kept = through_all(self.front, given.params, given.inputs)
            *inputs, outputs = values(given.layers, self.activations, a.flatten(1) if self.front else a)
            by_outputs = self.by_outputs(outputs, inputs[0], given.targets)
            if records < len(outputs):
                by_outputs *= records / len(outputs)
            by_layer = derivatives(given.layers, self.activations, inputs, by_outputs)
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


@dataclass(frozen=True, slots=True)
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


@lru_cache(maxsize=64)
def _shape(*given: Any) -> DenseShape:
    return DenseShape(*given)


def _kind(likelihood: Bernoulli | Categorical | Gaussian | Counts) -> tuple[int, float]:
    match likelihood:
        case Categorical():
            return CLASSES, 1.0
        case Bernoulli():
            return YES_OR_NO, 1.0
        case Gaussian():
            return NUMBER, likelihood.stddev**-2
        case Counts():
            return COUNT, likelihood.half


def linear_model(losses: Losses, params: Mapping[str, Tensor]) -> DenseModel | None:
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
    return DenseModel((("weight", bias),), (NONE,), likelihood, weighed)


def _is_untouched(layer: nn.Linear) -> bool:
    """Whether calling the layer is nothing but ``nn.Linear.forward``."""
    own = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return "forward" not in vars(layer) and not any(own) and not are_hooked(layer.parameters())


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
