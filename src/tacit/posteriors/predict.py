"""Predictions averaged over a posterior, with what they do not know taken apart.

With p_s the class probabilities of draw s and p their mean, the total uncertainty is the entropy H(p); the data's share
is the mean of H(p_s); the difference, the mutual information, is what more knowledge of the weights would remove.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tacit.errors import InputError
from tacit.posteriors.dropout import DropoutPosterior
from tacit.posteriors.posterior import Posterior

Link = Literal["softmax", "sigmoid"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """Class probabilities and their uncertainty, in nats.

    Args:
        mean: [inputs, classes], the posterior predictive probabilities.
        entropy: [inputs], total uncertainty.
        mutual_information: [inputs], the part of it that comes from not knowing the weights; 0 for a point.
    """

    mean: Tensor
    entropy: Tensor
    mutual_information: Tensor

    @property
    def classes(self) -> Tensor:
        """The most probable class of each input."""
        return self.mean.argmax(1)

    @property
    def confidence(self) -> Tensor:
        return self.mean.max(1).values


def predict(
    model: nn.Module, posterior: Posterior, inputs: Any, *, link: Link = "softmax", batch_size: int = 1024
) -> Prediction:
    """Predict with every draw and average, streaming over draws and inputs in bounded memory.

    Args:
        model: maps a batch of inputs to logits: [inputs, classes], or [inputs] or [inputs, 1] with link="sigmoid".
        inputs: a tensor whose first dimension counts inputs.

    Example:
        >>> from tacit.posteriors import Point
        >>> model = nn.Linear(2, 3)
        >>> point = Point({name: torch.zeros_like(p) for name, p in model.named_parameters()})
        >>> predict(model, point, torch.ones(1, 2)).mean
        tensor([[0.3333, 0.3333, 0.3333]])
    """
    if not isinstance(inputs, Tensor) or inputs.dim() == 0:
        raise InputError(f"inputs must be a tensor of records, found {type(inputs).__name__}")
    with torch.no_grad(), _evaluating(model):
        starts = range(0, len(inputs), batch_size)
        parts = [_predict_batch(model, posterior, inputs[start : start + batch_size], link, start) for start in starts]
    return Prediction(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _predict_batch(
    model: nn.Module, posterior: Posterior, inputs: Tensor, link: Link, start: int
) -> tuple[Tensor, Tensor, Tensor]:
    mean: Tensor | None = None
    data_entropy: Tensor | None = None
    for draw, params in enumerate(posterior):
        with posterior.running(model, draw, start) if isinstance(posterior, DropoutPosterior) else nullcontext():
            outputs = torch.func.functional_call(model, params, (inputs,))
        probabilities = _probabilities(outputs, link)
        entropy = _entropy(probabilities)
        mean = probabilities if mean is None else mean + probabilities
        data_entropy = entropy if data_entropy is None else data_entropy + entropy
    if mean is None or data_entropy is None:
        raise InputError("the posterior holds no draw")
    mean, data_entropy = mean / len(posterior), data_entropy / len(posterior)
    total = _entropy(mean)
    return mean, total, (total - data_entropy).clamp(min=0)


def _probabilities(outputs: Tensor, link: Link) -> Tensor:
    if link == "softmax":
        if outputs.dim() != 2 or outputs.shape[1] < 2:
            raise InputError(f"softmax needs logits of shape [inputs, classes], found {list(outputs.shape)}")
        return outputs.softmax(1)
    one = outputs.reshape(len(outputs), -1)
    if one.shape[1] != 1:
        raise InputError(f"sigmoid needs one logit per input, found {one.shape[1]}")
    return torch.cat([torch.sigmoid(-one), torch.sigmoid(one)], dim=1)


def _entropy(probabilities: Tensor) -> Tensor:
    terms: Tensor = torch.special.entr(probabilities)
    return terms.sum(1)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for the time of the call; every module gets its own mode back."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
