"""From the gradients of operations' outputs to the gradients of records, parameter by parameter."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

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
    parts = Parts(watch, layouts, leaves, records)
    for index, gradient in enumerate(gradients):
        parts.take(index, gradient)
    return parts.join()


class Parts:
    """Collects what each use adds to each parameter. Not closures: their cycle would keep a step's tensors alive."""

    def __init__(self, watch: WatchUses, layouts: Layouts, leaves: Mapping[str, Tensor], records: int) -> None:
        self.watch, self.layouts, self.leaves, self.records = watch, layouts, leaves, records
        self.settled = {id(use) for use, layout in zip(watch.uses, layouts, strict=True) if layout is not None}
        self.taken: set[int] = set()
        self.found: dict[str, list[RecordGradients]] = {}

    def take(self, index: int, gradient: Tensor | None) -> None:
        """The gradient of the output of a use."""
        use, layout = self.watch.uses[index], self.layouts[index]
        if gradient is None or layout is None:
            return
        self.taken.add(index)
        self.add_use(use, [tensor.detach() for tensor in use.call.inputs], gradient, layout)
        if not self.watch.derived:
            use.call = replace(use.call, inputs=())  # whoever still needs them has them

    def join(self) -> dict[str, RecordGradients]:
        return {name: _join(found, self.records, self.leaves[name]) for name, found in self.found.items()}

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
