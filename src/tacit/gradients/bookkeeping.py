"""Clipped gradients at the price of plain ones: one forward, one backward without weight gradients, then the sums.

The forward pass (``forward``) notes every use of a parameter. The backward pass asks autograd for the gradients of
the outputs of these uses and for nothing else, so that no weight gradient is formed. Then, parameter by parameter, the
records' norms are taken from the kept inputs and those output gradients, turned into clip factors, and the clipped sum
is formed, once.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tacit.gradients.forward import ForwardPass, Use
from tacit.gradients.layers.embedding import TiedRows, TokenRows, merge_rows
from tacit.gradients.layers.linear import OuterProducts, full, merge
from tacit.gradients.record_gradients import Dense, PulledBack, RecordGradients, Together, Turned, turned
from tacit.isolation import UncoveredError
from tacit.losses import check_one_loss_per_record
from tacit.types import Batch

Gradients = dict[str, RecordGradients]


def gradients_of(
    run: ForwardPass, losses: Callable[[Batch], Tensor], rows: Batch, leaves: Mapping[str, Tensor]
) -> Gradients:
    """The gradients of all records of one chunk; the loss of a record is the mean over its rows."""
    with torch.enable_grad():
        values = run.run(partial(_checked, losses), rows)[:, 0]
        for use in run.uses:
            use.check_inputs()
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
            forms = use.form(gradient)
        for parameter, part in zip(use.parameters, forms, strict=False):
            if parameter is not None and part is not None:
                self._add(parameter, part)
        use.form, use.inputs = _used, ()  # whoever still needs the inputs has them

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
        return {name: _join(found, self.run.records, self.leaves[name]) for name, found in self.found.items()}


def _used(gradient: Tensor) -> Sequence[RecordGradients | None]:
    raise AssertionError("a use has one gradient")


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Norms and sums are not for autocast."""
    enabled = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if enabled else nullcontext()


def _join(parts: Sequence[RecordGradients], records: int, leaf: Tensor) -> RecordGradients:
    """One parameter's gradients from those of its uses."""
    if len(parts) == 1:
        return parts[0]
    outer = [part for part in parts if isinstance(part, OuterProducts)]
    rows = [part for part in parts if isinstance(part, TokenRows)]
    alike = len({part.transposed for part in outer}) <= 1
    if len(outer) == len(parts) and alike:
        return merge(outer)
    if len(rows) == len(parts):
        return merge_rows(rows)
    of_one_type = len({*(part.g.dtype for part in outer), *(part.g.dtype for part in rows)}) == 1
    if len(outer) + len(rows) == len(parts) and alike and of_one_type and not outer[0].transposed:
        return TiedRows(merge_rows(rows), merge(outer))
    return Together(parts, records, leaf.numel(), full(leaf[:0] if leaf.dim() else leaf).dtype)
