"""The forward pass over records that see only themselves, in which every use of a parameter is noted.

A call that joins parameters to data is computed by a layer rule (``layers``), or with one copy of the parameter a row,
and noted as a *use*, from which ``bookkeeping`` takes the gradients of records.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from tacit.gradients.layers import RULE_OF_FUNCTION
from tacit.gradients.record_gradients import RecordGradients
from tacit.isolation import Isolated, UncoveredError
from tacit.isolation.functions import Known
from tacit.isolation.rows import tensors_in
from tacit.randomness import RecordChance

Form = Callable[[Tensor], Sequence[RecordGradients | None]]  # of the gradient of the output; one entry per parameter


@dataclass(slots=True)
class Use:
    """One operation that joins parameters to rows: how its output's gradient becomes gradients of records."""

    edge: GradientEdge
    parameters: tuple[Tensor | None, ...]
    form: Form
    inputs: tuple[tuple[Tensor, int], ...]  # what the form needs, as it was then
    is_end: bool  # no other use lies below it

    def check_inputs(self) -> None:
        """An input that was overwritten after the call is not the one the gradient belongs to."""
        if any(tensor._version != version for tensor, version in self.inputs):
            raise UncoveredError("the input of a layer is changed in place after the layer has used it")


class ForwardPass(Isolated):
    """One forward pass over rows of which each sees only itself.

    Args:
        leaves: the tensors whose gradients are wanted, by name.
        guarded: the model's parameters and buffers.
        rows: how many rows the batch has.
        records: how many records they belong to, ``rows / records`` rows in a row each.
        chance: of each row.
        private, fresh: as for :class:`tacit.isolation.Isolated`.
    """

    rules = RULE_OF_FUNCTION

    def __init__(
        self,
        leaves: Mapping[str, Tensor],
        guarded: Iterable[Tensor],
        rows: int,
        records: int,
        chance: RecordChance,
        *,
        private: Iterable[Tensor] = (),
        fresh: bool = False,
        any_rows: bool = False,
    ) -> None:
        super().__init__(guarded, rows, chance, private=private, fresh=fresh, any_rows=any_rows)
        self.records = records
        self.names = {id(tensor): name for name, tensor in leaves.items()}
        self.uses: list[Use] = []
        self.copies: list[tuple[Tensor, Tensor]] = []  # a tensor made of parameters, and its copies, one a row
        self.derived: dict[int, Tensor] = {}

    # What layer rules need

    def is_trained(self, tensor: Any) -> bool:
        """Whether a tensor is a parameter, or made of parameters alone."""
        return isinstance(tensor, Tensor) and tensor.requires_grad and torch.is_grad_enabled()

    def joins(self, data: Any, *parameters: Any) -> bool:
        """Whether a call joins parameters, at least one of them trained, to data."""
        given = [tensor for tensor in parameters if isinstance(tensor, Tensor)]
        if not self.is_of_rows(data) or any(map(is_batchedtensor, given)):
            return False
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)

    def twin(self, parameter: Tensor | None) -> Tensor | None:
        """The same numbers for one use: autograd is asked for nothing behind it, so no weight gradient is formed."""
        if parameter is None or not self.is_trained(parameter):
            return parameter
        return parameter.detach().requires_grad_()

    def keep(
        self, output: Tensor, inputs: tuple[Tensor, ...], parameters: tuple[Tensor | None, ...], form: Form
    ) -> None:
        """Note a use. ``output`` is the tensor of all rows as the operation gave it."""
        if not output.requires_grad:
            return
        if torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
            raise UncoveredError("saved tensors pass through hooks (checkpointing)")
        trained = tuple([tensor if self.is_trained(tensor) else None for tensor in parameters])
        edge = get_gradient_edge(output)
        versions = tuple([(tensor, tensor._version) for tensor in inputs])
        self.uses.append(Use(edge, trained, form, versions, not any(tensor.requires_grad for tensor in inputs)))

    def copied(self, tensor: Tensor) -> Tensor:
        """A tensor made of parameters with one copy a row, whose gradients are those of the rows."""
        if tensor.is_leaf and id(tensor) not in self.names:  # another model's: it is not trained here
            return tensor.detach()
        leaf = tensor.detach().expand(self.rows, *tensor.shape).requires_grad_()
        self.copies.append((tensor, leaf))
        return self.wrap(leaf)

    # The calls

    def with_parameters(
        self,
        facts: Known,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        trained: list[Tensor],
        of_rows: bool,
    ) -> Any:
        known = {id(tensor): tensor for tensor in trained}
        for tensor in trained:
            if not tensor.is_leaf and id(tensor) not in self.derived:
                raise UncoveredError("a tensor with a gradient history of its own comes from outside the losses")
        strangers = {key: t.detach() for key, t in known.items() if t.is_leaf and key not in self.names}
        if of_rows:
            swapped = {key: strangers.get(key, tensor) for key, tensor in known.items()}
            swapped = {key: self.copied(t) if t.requires_grad else t for key, t in swapped.items()}
            args, kwargs = _swap((args, kwargs), swapped)
            return self.plainly(facts, func, args, kwargs, of_rows)
        output = self.checked(facts, func, *_swap((args, kwargs), strangers))
        for tensor in tensors_in(output):
            if tensor.requires_grad:
                self.derived[id(tensor)] = tensor
        return output


def _swap(values: Any, swapped: Mapping[int, Tensor]) -> Any:
    """The same arguments with other tensors in place of some."""
    match values:
        case Tensor():
            return swapped.get(id(values), values)
        case tuple() if hasattr(values, "_fields"):
            return type(values)(*(_swap(value, swapped) for value in values))
        case tuple() | list() if not isinstance(values, torch.Size):
            return type(values)(_swap(value, swapped) for value in values)
        case dict():
            return {name: _swap(value, swapped) for name, value in values.items()}
    return values
