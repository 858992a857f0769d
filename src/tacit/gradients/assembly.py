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
    parts: dict[str, list[RecordGradients]] = {}
    settled = {id(use) for use, layout in zip(watch.uses, layouts, strict=True) if layout is not None}

    def add(tensor: Tensor, part: RecordGradients) -> None:
        name = watch.names.get(id(tensor))
        if name is not None:
            parts.setdefault(name, []).append(part)
        elif (derived := watch.derived.get(id(tensor))) is not None and id(derived.use) not in settled:
            add_derived(derived, part)

    def add_derived(derived: Derived, part: RecordGradients) -> None:
        if derived.use is None:
            for name in derived.sources:
                parts.setdefault(name, []).append(PulledBack(part, derived.tensor, leaves[name], records))
            return
        # Looked up once for all records: as if each record had looked it up.
        inputs = [tensor.expand(records, *tensor.shape) for tensor in derived.use.call.inputs]
        rows = part.materialise(0, records).reshape(records, *derived.tensor.shape)
        add_use(derived.use, inputs, rows, RecordLayout(0, "whole"))

    def add_use(use: Use, inputs: Sequence[Tensor], gradient: Tensor, layout: RecordLayout) -> None:
        forms = use.call.form(inputs, gradient, layout, records)
        for parameter, part in zip(use.call.parameters, forms, strict=True):
            if parameter is not None and part is not None:
                add(parameter, part)

    for use, gradient, layout in zip(watch.uses, gradients, layouts, strict=True):
        if gradient is not None and layout is not None:
            add_use(use, [tensor.detach() for tensor in use.call.inputs], gradient, layout)
    return {name: _join(found, records, leaves[name]) for name, found in parts.items()}


def _join(parts: Sequence[RecordGradients], records: int, leaf: Tensor) -> RecordGradients:
    """One parameter's gradients from those of its uses."""
    if len(parts) == 1:
        return parts[0]
    outer = [part for part in parts if isinstance(part, OuterProducts)]
    if len(outer) == len(parts) and len({part.transposed for part in outer}) == 1:
        return merge(outer)
    return Together(parts, records, leaf.numel(), leaf.dtype)
