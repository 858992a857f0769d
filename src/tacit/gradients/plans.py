"""Plans of the fast path: where the records are in the tensors of a model, verified against autograd before use.

The first time a model makes a sequence of calls, the losses are also differentiated with a random weight for each
record. That shows which dimension of each tensor runs over records, and the weighted sum formed from per-record
gradients must equal the gradient of the weighted losses for every parameter. Were a record's gradient attributed to
another record, a use missed or records mixed, the two would differ. A plan that cannot be verified is not used.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from tacit.gradients.assembly import Layouts, assemble
from tacit.gradients.record_gradients import RecordGradients
from tacit.gradients.record_layout import RecordLayout, find_layout
from tacit.gradients.uses import UncoveredError, Use, WatchUses
from tacit.losses import Losses, ModelLosses

_MOST_PLANS = 256
_REPEATS = 16
_TOLERANCE = {torch.float64: 1e-7, torch.float32: 1e-3}
Key = tuple[object, ...]


@dataclass(slots=True)
class Plans:
    """The verified plans of one losses function: the layout of every use, by the sequence of calls."""

    layouts: dict[Key, Layouts] = field(default_factory=dict)
    uncovered: set[Key] = field(default_factory=set)  # batches for which the fast path is known to fail

    def know(self, watch: WatchUses) -> bool:
        return _key(watch) in self.layouts

    def keep(self, key: Key, layouts: Layouts) -> None:
        if len(self.layouts) >= _MOST_PLANS:
            self.layouts.clear()
        self.layouts[key] = layouts


_PLANS: WeakKeyDictionary[object, WeakKeyDictionary[object, Plans]] = WeakKeyDictionary()


def plans_of(losses: Losses) -> Plans:
    """Plans live as long as the model and the losses do, and never on the user's objects."""
    owner: object
    function: object
    if isinstance(losses, ModelLosses):  # made anew by some methods at every step; what it joins is not
        owner, function = losses.model, losses.user_losses
    else:
        owner = function = getattr(losses, "__self__", losses)
    try:
        return _PLANS.setdefault(owner, WeakKeyDictionary()).setdefault(function, Plans())
    except TypeError:  # cannot be hashed or referred to weakly: verified at every call
        return Plans()


def output_gradients(
    values: Tensor,
    watch: WatchUses,
    leaves: Mapping[str, Tensor],
    plans: Plans,
    first_alone: Callable[[], Tensor],
) -> dict[str, RecordGradients]:
    """The gradients of all records for every parameter that is used, from one backward pass (two for a new plan)."""
    key = _key(watch)
    layouts = plans.layouts.get(key)
    records = len(values)
    if layouts is None or not _fits(layouts, watch.uses, records):
        return _verify(values, watch, leaves, plans, key, first_alone)
    gradients = torch.autograd.grad(
        values,
        [use.edge for use in watch.uses],
        torch.ones_like(values),
        allow_unused=True,
        retain_graph=bool(watch.derived),
    )
    if any((gradient is None) > (layout is None) for gradient, layout in zip(gradients, layouts, strict=True)):
        raise UncoveredError("an operation that was part of the losses no longer is", always=False)
    return assemble(watch, gradients, layouts, leaves, records)


def _verify(
    values: Tensor,
    watch: WatchUses,
    leaves: Mapping[str, Tensor],
    plans: Plans,
    key: Key,
    first_alone: Callable[[], Tensor],
) -> dict[str, RecordGradients]:
    records = len(values)
    if records < 2:
        raise UncoveredError("one record cannot show where the records are", always=False)
    weights = _weights(records, values)
    edges = [use.edge for use in watch.uses]
    gradients = torch.autograd.grad(values, edges, torch.ones_like(values), allow_unused=True, retain_graph=True)
    inputs: list[Any] = [*edges, *leaves.values()]
    weighted = torch.autograd.grad(values, inputs, weights, allow_unused=True, retain_graph=True)
    layouts, telling = _find_layouts(watch.uses, gradients, weighted[: len(edges)], weights)
    found = assemble(watch, gradients, layouts, leaves, records)
    with torch.no_grad(), full_precision(values.device):
        totals = {name: part.weighted_sum(weights.double()) for name, part in found.items()}
    _compare(leaves, totals, weighted[len(edges) :], _tolerance(gradients))
    _check_alone(values[0].item(), first_alone, _tolerance(gradients))
    if telling:
        plans.keep(key, layouts)
    return found


def _check_alone(together: float, first_alone: Callable[[], Tensor], tolerance: float) -> None:
    """A statistic of the batch that carries no gradient shows in the loss of a record without the others.

    Chance inside the model (dropout) makes it differ too, but then also from one time to the next: a few repeats tell,
    since small masks often come out alike.
    """
    alone = first_alone().item()
    if math.isclose(alone, together, rel_tol=tolerance, abs_tol=tolerance * 1e-2):
        return
    if all(first_alone().item() == alone for _ in range(_REPEATS)):
        raise UncoveredError("the loss of a record depends on the others")


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """Norms and sums are not for autocast."""
    enabled = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if enabled else nullcontext()


def _find_layouts(
    uses: Sequence[Use], gradients: Sequence[Tensor | None], weighted: Sequence[Tensor | None], weights: Tensor
) -> tuple[Layouts, bool]:
    """Layouts of all uses, and whether every one of them rests on gradients that are not zero."""
    layouts: list[RecordLayout | None] = []
    all_tell = True
    for use, gradient, scaled in zip(uses, gradients, weighted, strict=True):
        if gradient is None or scaled is None:
            layouts.append(None)
            continue
        tolerance = _tolerance([gradient])
        layout, tells = find_layout(gradient, scaled, weights, use.call.record_dims, tolerance=tolerance)
        layouts.append(layout)
        all_tell &= tells
    return tuple(layouts), all_tell


def _compare(
    leaves: Mapping[str, Tensor], totals: Mapping[str, Tensor], expected: Sequence[Tensor | None], tolerance: float
) -> None:
    """Sums of per-record gradients against autograd's, up to rounding, also that of sums which cancel to nothing."""
    largest = max((float(value.abs().max()) for value in expected if value is not None and value.numel()), default=0.0)
    if not math.isfinite(largest):
        raise UncoveredError("a gradient is not finite, which leaves nothing to compare", always=False)
    for (name, leaf), value in zip(leaves.items(), expected, strict=True):
        right = torch.zeros_like(leaf) if value is None else value
        total = totals.get(name, torch.zeros_like(leaf)).to(right.dtype)
        size = float(right.abs().max()) if right.numel() else 0.0
        margin = tolerance * (size + 3e-3 * largest)
        if total.shape != right.shape or not torch.allclose(total, right, rtol=tolerance, atol=margin):
            raise UncoveredError(f"the per-record gradients of {name} do not add up")


def _tolerance(tensors: Sequence[Tensor | None]) -> float:
    return max((_TOLERANCE.get(tensor.dtype, 5e-2) for tensor in tensors if tensor is not None), default=1e-3)


def _weights(records: int, like: Tensor) -> Tensor:
    """Random powers of two, by which products are exact, from a generator of our own."""
    generator = torch.Generator().manual_seed(records)
    powers = torch.randint(0, 4, (records,), generator=generator)
    powers[0], powers[-1] = 0, 3
    return torch.pow(2.0, powers).to(like.dtype).to(like.device)


def _key(watch: WatchUses) -> Key:
    return tuple(
        (
            use.name,
            len(use.shape),
            *(p if p is None else watch.names.get(id(p), "derived") for p in use.call.parameters),
        )
        for use in watch.uses
    )


def _fits(layouts: Layouts, uses: Sequence[Use], records: int) -> bool:
    return all(layout is None or layout.fits(use.shape, records) for layout, use in zip(layouts, uses, strict=True))
