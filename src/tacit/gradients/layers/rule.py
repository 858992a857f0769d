"""What a layer rule is: a function of PyTorch whose per-record gradients have a form cheaper than a row per record."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tacit.gradients.record_gradients import RecordGradients
from tacit.gradients.record_layout import RecordLayout

# Inputs as they were kept, the gradient of the output, its layout and the number of records; one entry per parameter.
Form = Callable[[Sequence[Tensor], Tensor, RecordLayout, int], Sequence[RecordGradients | None]]


@dataclass(frozen=True, slots=True)
class LayerCall:
    """One call of a function on parameters, as far as its per-record gradients need it.

    Args:
        parameters: the tensors whose gradients ``form`` gives, in its order; None where the layer has none.
        inputs: what to keep until the gradient of the output is known.
        record_dims: how many leading dimensions of the output may run over records.
        shared: the output may belong to no record (positions looked up once for all of them).
    """

    parameters: tuple[Tensor | None, ...]
    inputs: tuple[Tensor, ...]
    form: Form
    record_dims: int
    shared: bool = False


@dataclass(frozen=True, slots=True)
class LayerRule:
    """Functions of PyTorch and how to bind a call of them; None from ``bind`` leaves the call to the fallback.

    ``bind`` gets the output first, then the arguments of the call.
    """

    name: str
    functions: tuple[Any, ...]
    bind: Callable[..., LayerCall | None]
