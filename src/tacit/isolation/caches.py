"""What a model keeps for later may be kept if it follows from shapes alone: a causal mask, an angle for each position.

Such caches are filled on records of our making before the run, so that private records change nothing any more. They
are filled twice, on other values: what is not the same both times, such as a mean that is kept from the first batch,
follows from values, is taken out again, and is refused when private records come.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from tacit.isolation.facts import PLAIN_VALUES
from tacit.isolation.guard import StateGuard
from tacit.types import Batch


def fill_caches(guard: StateGuard, losses: Callable[[Batch], object], batches: Iterable[Batch]) -> None:
    """Run the losses on each batch, put everything back, and keep what they had added each time alike.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> def losses(batch):
        ...     model.__dict__.setdefault("width", batch.shape[1])
        ...     model.__dict__.setdefault("mean", batch.mean())
        >>> fill_caches(StateGuard(model=model), losses, [torch.zeros(3, 2), torch.ones(3, 2)])
        >>> model.width, hasattr(model, "mean")
        (2, False)
    """
    found = []
    for batch in batches:
        guard.__enter__()
        try:
            losses(batch)
        except Exception:
            return  # whatever it is: the trial that follows says so
        finally:
            found.append({(id(holder), key): (holder, key, value) for holder, key, value in guard.additions()})
            guard.put_back()
    for place, (holder, key, value) in found[0].items():
        if all(place in others and _same(value, others[place][2]) for others in found[1:]):
            holder[key] = value


def _same(one: Any, other: Any) -> bool:
    """Equal values that no gradient runs through: what is made of parameters changes with them."""
    if type(one) is not type(other):
        return False
    match one:
        case Tensor():
            alike = one.shape == other.shape and one.dtype == other.dtype and not one.requires_grad
            return alike and torch.equal(one, other)
        case list() | tuple():
            return len(one) == len(other) and all(map(_same, one, other))
        case dict():
            return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return isinstance(one, PLAIN_VALUES) and bool(one == other)
