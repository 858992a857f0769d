"""Clipped gradients at the price of plain ones: one forward, one backward without weight gradients, then the sums.

In the forward pass records see only themselves, and every call that joins parameters to data is computed by a layer
rule (``layers``), or with one copy of the parameter a row, and noted as a *use*. The backward pass asks autograd for
the gradients of the outputs of these uses and for nothing else, so that no weight gradient is formed. Then, parameter
by parameter, the records' norms are taken from the kept inputs and those output gradients, turned into clip factors,
and the clipped sum is formed, once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from tacit.isolation import Isolated, UncoveredError
from tacit.isolation.functions import Known
from tacit.isolation.rows import tensors_in
from tacit.layers import RULE_OF_FUNCTION
from tacit.layers.record_gradients import Dense, RecordGradients, full, full_precision
from tacit.layers.several_uses import PulledBack, Turned, joined, turned
from tacit.losses import check_one_loss_per_record
from tacit.randomness import RecordChance
from tacit.types import Batch

Gradients = dict[str, RecordGradients]
Form = Callable[[Tensor], Sequence[RecordGradients | None]]  # of the gradient of its output; one a parameter


@dataclass(slots=True)
class Use:
    """One operation that joins parameters to rows: how its output's gradient becomes gradients of records."""

    edge: GradientEdge
    parameters: tuple[Tensor | None, ...]
    form: Form
    is_end: bool  # no other use lies below it


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
        told: bool = True,
    ) -> None:
        super().__init__(guarded, rows, chance, private=private, fresh=fresh, any_rows=any_rows, told=told)
        self.records = records
        self.names = {id(tensor): name for name, tensor in leaves.items()}
        self.uses: list[Use] = []
        self.copies: list[tuple[Tensor, Tensor]] = []  # a tensor made of parameters, and its copies, one a row
        self.derived: dict[int, Tensor] = {}
        self._read: list[tuple[Tensor, int]] = []  # what uses need, and how often it had been written into then

    # What layer rules need

    def is_trained(self, tensor: Any) -> bool:
        """Whether a tensor is a parameter, or made of parameters alone."""
        return isinstance(tensor, Tensor) and tensor.requires_grad and torch.is_grad_enabled()

    def joins(self, data: Any, *parameters: Any) -> bool:
        """Whether a call joins parameters, at least one of them trained, to data."""
        given = [tensor for tensor in parameters if isinstance(tensor, Tensor)]
        is_data = isinstance(data, Tensor) and is_batchedtensor(data)
        if not is_data or any(map(is_batchedtensor, given)):
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
        _refuse_complex(output)
        if torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
            raise UncoveredError("saved tensors pass through hooks (checkpointing)")
        trained = tuple([tensor if self.is_trained(tensor) else None for tensor in parameters])
        edge = get_gradient_edge(output)
        self._read += [(tensor, tensor._version) for tensor in (*inputs, *trained) if tensor is not None]
        self.uses.append(Use(edge, trained, form, not any(tensor.requires_grad for tensor in inputs)))

    def copied(self, tensor: Tensor) -> Tensor:
        """A tensor made of parameters with one copy a row, whose gradients are those of the rows."""
        if tensor.is_leaf and id(tensor) not in self.names:  # another model's: it is not trained here
            return tensor.detach()
        _refuse_complex(tensor)
        self._read.append((tensor, tensor._version))
        leaf = tensor.detach().expand(self.rows, *tensor.shape).requires_grad_()
        self.copies.append((tensor, leaf))
        return self.wrap(leaf)

    def check_read(self) -> None:
        """What was overwritten after a use is not what the gradient belongs to."""
        if any(tensor._version != version for tensor, version in self._read):
            raise UncoveredError("what a layer has used is changed in place afterwards")
        self._read = []  # forms keep what they need

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


def _refuse_complex(tensor: Tensor) -> None:
    """Norms and sums are of real numbers."""
    if tensor.is_complex():
        raise UncoveredError("parameters become complex numbers")


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


# The backward pass


def gradients_of(
    run: ForwardPass, losses: Callable[[Batch], Tensor], rows: Batch, leaves: Mapping[str, Tensor]
) -> Gradients:
    """The gradients of all records of one chunk; the loss of a record is the mean over its rows."""
    with torch.enable_grad():
        values = run.run(partial(_checked, losses), rows)[:, 0]
        run.check_read()
        parts = Parts(run, leaves)
        if values.requires_grad:
            _run_backward(values, run, parts, leaves)
    return parts.join()


def _checked(losses: Callable[[Batch], Tensor], rows: Batch) -> Tensor:
    values = losses(rows)
    check_one_loss_per_record(values, 1)
    return values


def _run_backward(values: Tensor, run: ForwardPass, parts: "Parts", leaves: Mapping[str, Tensor]) -> None:
    """One backward pass; every use's output gradient goes to ``parts`` when it comes by, and its memory is free again.

    Asked for all of them at once, autograd would hold them all until its end. So it is asked only for those below which
    no other use lies, and on its way there it comes by the others. It is asked for the parameters themselves too: twins
    and copies cut every path to them, so a gradient that arrives there is of a use that was not seen.
    """
    ends = [index for index, use in enumerate(run.uses) if use.is_end]
    handles = [
        use.edge.node.register_prehook(partial(_pass_on, parts, index, use.edge.output_nr))
        for index, use in enumerate(run.uses)
        if not use.is_end
    ]
    total = values.sum() * (run.records / run.rows)  # an output gradient given to autograd would make it import sympy
    asked: list[Any] = [run.uses[index].edge for index in ends]
    asked += [leaf for _, leaf in run.copies]
    asked += [leaf for leaf in leaves.values() if leaf.is_leaf]
    try:
        found = torch.autograd.grad(total, asked, allow_unused=True, retain_graph=bool(run.derived))
    finally:
        for handle in handles:
            handle.remove()
    for index, gradient in zip(ends, found, strict=False):
        parts.take(index, gradient)
    for (tensor, _), gradient in zip(run.copies, found[len(ends) :], strict=False):
        parts.take_copies(tensor, gradient)
    if any(gradient is not None for gradient in found[len(ends) + len(run.copies) :]):
        raise UncoveredError("a parameter is used in a way that was not seen")
    if len(parts.taken) < len(run.uses):
        _check_missing(values, [use for index, use in enumerate(run.uses) if index not in parts.taken])


def _pass_on(parts: "Parts", index: int, output: int, gradients: Sequence[Tensor | None]) -> None:
    parts.take(index, gradients[output])


def _check_missing(values: Tensor, missing: Sequence[Use]) -> None:
    """A use whose gradient did not come by must have no part in the losses."""
    nodes = {use.edge.node for use in missing}
    stack: list[Any] = [values.grad_fn]
    seen = set()
    while stack:
        node = stack.pop()
        if node in nodes:
            raise UncoveredError("the gradient of a layer's output did not come by")
        if node is not None and node not in seen:
            seen.add(node)
            stack += [child for child, _ in node.next_functions]


class Parts:
    """Collects what each use adds to each parameter. Not closures: their cycle would keep a step's tensors alive."""

    def __init__(self, run: ForwardPass, leaves: Mapping[str, Tensor]) -> None:
        self.run, self.leaves = run, leaves
        self.taken: set[int] = set()
        self.found: dict[str, list[RecordGradients]] = {}

    def take(self, index: int, gradient: Tensor | None) -> None:
        """The gradient of the output of a use."""
        if gradient is None:
            return
        use = self.run.uses[index]
        self.taken.add(index)
        with torch.no_grad(), full_precision(gradient.device):
            forms = use.form(full(gradient))
        for parameter, part in zip(use.parameters, forms, strict=False):
            if parameter is not None and part is not None:
                self._add(parameter, part)
        use.form = _used  # whoever still needs the inputs has them

    def take_copies(self, tensor: Tensor, gradient: Tensor | None) -> None:
        """The gradients of the copies of a tensor, one a row."""
        if gradient is not None:
            rows = full(gradient).reshape(self.run.records, -1, *tensor.shape)
            self._add(tensor, Dense(rows[:, 0] if rows.shape[1] == 1 else rows.sum(1)))

    def _add(self, tensor: Tensor, part: RecordGradients) -> None:
        name, base = self.run.names.get(id(tensor)), self.run.names.get(id(tensor._base))
        if base is not None and (order := turned(tensor)):  # a transpose: no need to go through autograd
            name, part = base, Turned(part, order)
        if name is not None:
            self.found.setdefault(name, []).append(part)
        elif not tensor.is_leaf:  # made of parameters: back to each of those that it is made of
            sources = torch.autograd.grad(
                tensor, list(self.leaves.values()), torch.zeros_like(tensor), retain_graph=True, allow_unused=True
            )
            for (name, leaf), source in zip(self.leaves.items(), sources, strict=True):
                if source is not None:
                    self.found.setdefault(name, []).append(PulledBack(part, tensor, leaf, self.run.records))

    def join(self) -> Gradients:
        return {name: joined(found, self.run.records, self.leaves[name]) for name, found in self.found.items()}


def _used(gradient: Tensor) -> Sequence[RecordGradients | None]:
    raise AssertionError("a use has one gradient")
