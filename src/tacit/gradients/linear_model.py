"""Linear models under likelihoods of our own, as tables need them: their gradients by formula, in a few calls.

A record (x, y) with outputs z = W x + b has the gradient g x^T by W and g by b, where g is the likelihood's derivative
by z, times the record's weight if it has one.

No line of the user's runs, so that there is nothing to keep apart, to watch or to compare; all other losses take
the general way, which gives the same numbers (tests/gradients/test_linear_model.py).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as every_module

from tacit.gradients.bookkeeping import Gradients
from tacit.gradients.layers.linear import outer_products, shifts
from tacit.isolation import RecordGroup
from tacit.likelihoods import Bernoulli, Categorical, Counts, Gaussian, Weighed
from tacit.losses import Losses, ModelLosses
from tacit.types import Batch

LIKELIHOODS = (Bernoulli, Categorical, Gaussian, Counts)


@dataclass(frozen=True, slots=True)
class LinearModel:
    """A linear layer at some parameters, and the likelihood of its outputs."""

    weight: Tensor
    bias: Tensor | None
    likelihood: Bernoulli | Categorical | Gaussian | Counts
    weighed: Weighed | None
    trained: tuple[str, ...]

    @property
    def multiple(self) -> int:
        """Of rows: with it no operation treats the last of them in another way (isolation/rows.py)."""
        return math.lcm(16, 32 * torch.get_num_threads())

    def gradients(self, batch: Batch, records: int) -> Gradients:
        """Of all records of a batch; the loss of a record is the mean over its rows."""
        inputs, targets = batch
        with torch.no_grad():
            outputs = functional.linear(inputs, self.weight, self.bias)
            by_outputs = self.likelihood.by_outputs(outputs, targets)
            if self.weighed is not None:
                by_outputs *= self.weighed.weights(inputs)[:, None]
            if records < len(inputs):
                by_outputs *= records / len(inputs)
        found: Gradients = {"weight": outer_products(records, inputs, by_outputs), "bias": shifts(records, by_outputs)}
        return {name: found[name] for name in self.trained}


def linear_model(losses: Losses, params: Mapping[str, Tensor], groups: Sequence[RecordGroup]) -> LinearModel | None:
    """The model as a formula; None for all that is anything but a plain layer, a likelihood of ours and rows of floats.

    A class derived from one of them, a hook or a forward of somebody's own could do anything.
    """
    if type(losses) is not ModelLosses or type(losses.model) is not nn.Linear or not _is_untouched(losses.model):
        return None
    likelihood, weight = losses.user_losses, params.get("weight")
    weighed = likelihood if type(likelihood) is Weighed else None
    likelihood = likelihood if weighed is None else weighed.likelihood
    if weight is None or not isinstance(likelihood, LIKELIHOODS) or type(likelihood) not in LIKELIHOODS:
        return None
    right_outputs = len(weight) > 1 if isinstance(likelihood, Categorical) else len(weight) == 1
    if not right_outputs or not all(_suits(group.batch, weight) for group in groups):
        return None
    bias = params.get("bias", losses.model.bias)
    return LinearModel(weight.detach(), None if bias is None else bias.detach(), likelihood, weighed, tuple(params))


def _is_untouched(layer: nn.Linear) -> bool:
    """Whether calling the layer is nothing but ``nn.Linear.forward``."""
    own = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    global_hooks = (every_module._global_forward_hooks, every_module._global_forward_pre_hooks)
    hooks_of_parameters = (p._backward_hooks for p in layer.parameters())
    return "forward" not in vars(layer) and not any((*own, *global_hooks, *hooks_of_parameters))


def _suits(batch: Any, weight: Tensor) -> bool:
    if not (isinstance(batch, tuple | list) and len(batch) == 2 and all(type(part) is Tensor for part in batch)):
        return False
    inputs, targets = batch
    plain = inputs.dtype == weight.dtype == torch.float32 and inputs.device == targets.device == weight.device
    whole = not targets.is_complex() and targets.dim() == 1
    return plain and whole and inputs.dim() == 2 and inputs.shape == (len(targets), weight.shape[1])
