"""From the gradients of operations' outputs to the gradients of records, parameter by parameter."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from tacit.gradients.layers.linear import OuterProducts, merge
from tacit.gradients.record_gradients import PulledBack, RecordGradients, Together
from tacit.gradients.record_layout import RecordLayout
from tacit.gradients.uses import Derived, Use, WatchUses

Layouts = tuple[RecordLayout | None, ...]  # of every use; None where it has no records or no share in the losses


def assemble(
    watch: WatchUses,
    gradients: Sequence[Tensor | None],
    layouts: Layouts,
    leaves: Mapping[str, Tensor],
    records: int,
) -> dict[str, RecordGradients]:
    """Per-record gradients by parameter, from the gradients of the outputs of its uses."""
    settled = {id(use) for use, layout in zip(watch.uses, layouts, strict=True) if layout is not None}
    parts = _Parts(watch, leaves, records, settled)
    for use, gradient, layout in zip(watch.uses, gradients, layouts, strict=True):
        if gradient is not None and layout is not None:
            parts.add_use(use, [tensor.detach() for tensor in use.call.inputs], gradient, layout)
    return {name: _join(found, records, leaves[name]) for name, found in parts.found.items()}


class _Parts:
    """Collects what each use adds to each parameter. Not closures: their cycle would keep a step's tensors alive."""

    def __init__(self, watch: WatchUses, leaves: Mapping[str, Tensor], records: int, settled: set[int]) -> None:
        self.watch, self.leaves, self.records, self.settled = watch, leaves, records, settled
        self.found: dict[str, list[RecordGradients]] = {}

    def add_use(self, use: Use, inputs: Sequence[Tensor], gradient: Tensor, layout: RecordLayout) -> None:
        forms = use.call.form(inputs, gradient, layout, self.records)
        for parameter, part in zip(use.call.parameters, forms, strict=True):
            if parameter is not None and part is not None:
                self._add(parameter, part)

    def _add(self, tensor: Tensor, part: RecordGradients) -> None:
        name = self.watch.names.get(id(tensor))
        if name is not None:
            self.found.setdefault(name, []).append(part)
        elif (derived := self.watch.derived.get(id(tensor))) is not None and id(derived.use) not in self.settled:
            self._add_derived(derived, part)

    def _add_derived(self, derived: Derived, part: RecordGradients) -> None:
        if derived.use is None:
            for name in derived.sources:
                pulled = PulledBack(part, derived.tensor, self.leaves[name], self.records)
                self.found.setdefault(name, []).append(pulled)
            return
        # Looked up once for all records: as if each record had looked it up.
        inputs = [tensor.expand(self.records, *tensor.shape) for tensor in derived.use.call.inputs]
        rows = part.materialise(0, self.records).reshape(self.records, *derived.tensor.shape)
        self.add_use(derived.use, inputs, rows, RecordLayout(0, "whole"))


def _join(parts: Sequence[RecordGradients], records: int, leaf: Tensor) -> RecordGradients:
    """One parameter's gradients from those of its uses."""
    if len(parts) == 1:
        return parts[0]
    outer = [part for part in parts if isinstance(part, OuterProducts)]
    if len(outer) == len(parts) and len({part.transposed for part in outer}) == 1:
        return merge(outer)
    return Together(parts, records, leaf.numel(), leaf.dtype)
