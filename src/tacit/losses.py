"""The one function that sees data: one loss per record, as a function of parameters (design, rule 1); and its batches.

A batch is a tensor, or a tuple, list or mapping of batches; its first dimension counts records.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tacit.errors import InputError, LossesError
from tacit.types import Batch

UserLosses = Callable[[nn.Module, Batch], Tensor]
Places = npt.NDArray[np.int64]

_LEAST = 16  # rows: for fewer libraries take other kernels
_SIZES = 64  # of parts between a number of rows and its double


class Losses(Protocol):
    """Losses as a function of named parameters: what an inference method hands to the engine."""

    def __call__(self, params: Mapping[str, Tensor], batch: Batch) -> Tensor: ...


class _Calling(nn.Module):
    """Lets ``functional_call`` swap the parameters of the user's model while the user's function runs."""

    def __init__(self, model: nn.Module, losses: UserLosses) -> None:
        super().__init__()
        self.model = model
        self.losses = losses

    def forward(self, batch: Batch) -> Tensor:
        return self.losses(self.model, batch)


class ModelLosses:
    """The user's ``losses(model, batch)`` as a function of the model's parameters. The model itself is not changed.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> losses = ModelLosses(model, lambda model, batch: model(batch).square().sum(1))
        >>> losses({"weight": torch.ones(1, 2), "bias": torch.zeros(1)}, torch.ones(3, 2))
        tensor([4., 4., 4.])
    """

    def __init__(self, model: nn.Module, losses: UserLosses) -> None:
        if not isinstance(model, nn.Module):
            raise InputError(f"model must be a torch module, found {type(model).__name__}")
        if not callable(losses):
            raise InputError(f"losses must be a function of model and batch, found {type(losses).__name__}")
        for name, parameter in self._trained(model).items():
            _check_parameter(name, parameter)
        self.model = model
        self.user_losses = losses
        self._calling = [_Calling(model, losses)]  # in a list: the model's tree of modules is never ours

    @property
    def params(self) -> dict[str, nn.Parameter]:
        """The trained parameters: those that require a gradient, tied ones once."""
        return self._trained(self.model)

    @staticmethod
    def _trained(model: nn.Module) -> dict[str, nn.Parameter]:
        return {name: p for name, p in model.named_parameters() if p.requires_grad}

    def start(self) -> dict[str, Tensor]:
        """A copy of the trained parameters as they are: where a method starts."""
        return {name: p.detach().clone() for name, p in self.params.items()}

    def owns(self, params: Mapping[str, Tensor], held: Mapping[str, Tensor] | None = None) -> bool:
        """Whether these are the model's own tensors, so that the model can run as it is; ``held``: all that it has."""
        own = dict(self.model.named_parameters()) if held is None else held
        return all(own.get(name) is value for name, value in params.items())

    def __call__(self, params: Mapping[str, Tensor], batch: Batch) -> Tensor:
        state = {f"model.{name}": value for name, value in params.items()}
        result: Tensor = torch.func.functional_call(self._calling[0], state, (batch,))
        return result


def _check_parameter(name: str, parameter: nn.Parameter) -> None:
    """Refuse what no gradient is measured for: a record's share of it would be left out, or not be known."""
    if nn.parameter.is_lazy(parameter):
        raise InputError(f"parameter {name} of a lazy layer has no shape yet; call the model once on a public input")
    if parameter.is_complex():
        raise InputError(
            f"parameter {name} is complex ({parameter.dtype}); train a real one of shape [..., 2] and use "
            "torch.view_as_complex of it in forward"
        )


class ParameterKinds:
    """Names, shapes and types of what is trained: a mechanism clips and adds noise to these vectors, and no others.

    Example:
        >>> planned = ParameterKinds({"weight": torch.zeros(2, 3)})
        >>> planned.check({"weight": torch.ones(2, 3)})
        >>> try:
        ...     planned.check({})
        ... except InputError as error:
        ...     print(str(error).partition(":")[0])
        parameter weight is not trained any more
    """

    def __init__(self, params: Mapping[str, Tensor]) -> None:
        self._planned = self._kinds(params)

    @staticmethod
    def _kinds(params: Mapping[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
        return {name: (value.shape, value.dtype) for name, value in params.items()}

    def check(self, params: Mapping[str, Tensor]) -> None:
        """The same names, shapes and types; other values, and other tensors that hold them, are fine."""
        kinds, planned = self._kinds(params), self._planned
        if kinds == planned:
            return
        for name in sorted(kinds.keys() | planned.keys()):
            if kinds.get(name) != planned.get(name):
                how = "is not trained any more" if name not in kinds else "is new"
                how = "has another shape or type" if name in kinds and name in planned else how
                raise InputError(
                    f"parameter {name} {how}: what is trained was fixed at the start; make a new PrivateGradient (it "
                    "may share the ledger) after freezing, unfreezing or replacing layers"
                )


def check_one_loss_per_record(losses: object, records: int) -> None:
    """``losses`` must be a tensor of shape [records]; anything else would be clipped wrongly."""
    if not isinstance(losses, Tensor):
        raise LossesError(f"losses must return a tensor with one loss per record, found {type(losses).__name__}")
    if tuple(losses.shape) != (records,):
        raise LossesError(
            f"losses must return one loss per record, shape [{records}], found {list(losses.shape)}; "
            "use reduction='none' and do not average over records"
        )


# ---- batches ----


@dataclass(frozen=True, slots=True)
class RecordGroup:
    """Records of one shape, stacked, and their places among the records of the sample.

    Records of different shapes (sentences of different lengths) are computed in groups of one shape: to pad them to a
    common one would let the longest record change what happens to the others.
    """

    batch: Batch
    places: Places


@dataclass(slots=True)
class Fill:
    """To how many rows parts are filled up: learned from the shapes of what some losses compute, which are public."""

    multiple: int = 1

    def __call__(self, places: Places, rows_each: int = 1) -> Places:
        """The places with the last one repeated."""
        step = self.multiple // math.gcd(self.multiple, rows_each)
        step *= 1 << max(0, (len(places) // (_SIZES * step)).bit_length() - 1)
        wanted = -(-max(len(places), -(-_LEAST // rows_each)) // step) * step
        return np.append(places, places[-1:].repeat(wanted - len(places)))


def map_tensors(function: Callable[[Tensor], Tensor], batch: Batch) -> Batch:
    """The same tree with the function applied to every tensor."""
    match batch:
        case Tensor():
            return function(batch)
        case tuple() if hasattr(batch, "_fields"):
            return type(batch)(*(map_tensors(function, part) for part in batch))
        case tuple() | list():
            return type(batch)([map_tensors(function, part) for part in batch])
        case Mapping():
            return {name: map_tensors(function, part) for name, part in batch.items()}
        case _:
            raise InputError(f"a batch holds tensors, tuples, lists and mappings of them; found {type(batch).__name__}")


def tensors_of(batch: Batch) -> list[Tensor]:
    """All tensors of the tree, in order."""
    found: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(keep, batch)
    return found


def count_records(batch: Batch) -> int:
    """The common first dimension of all tensors of the batch."""
    if any(tensor.is_nested for tensor in tensors_of(batch)):
        raise InputError("nested tensors have no rows that could be drawn; give a data set whose items are the records")
    sizes = {tensor.shape[0] if tensor.dim() else None for tensor in tensors_of(batch)}
    if len(sizes) != 1 or None in sizes:
        raise InputError(f"all tensors of a batch need as many rows as there are records; found {sizes}")
    return int(sizes.pop() or 0)


def take_records(batch: Batch, records: slice | Tensor | int) -> Batch:
    """Some records of a batch."""
    if isinstance(records, Tensor):  # several times as fast as tensor[records]
        return map_tensors(lambda tensor: tensor.index_select(0, records.to(tensor.device)), batch)
    return map_tensors(lambda tensor: tensor[records], batch)


def copy_records(batch: Batch, records: slice) -> Batch:
    """Some records in memory of their own: kernels round differently where a tensor is aligned differently."""
    return map_tensors(lambda tensor: tensor[records].clone(), batch)


def stack_views(views: list[Batch]) -> Batch:
    """Several views of the same records as one batch of shape [records, views, ...]."""
    flat = [tensors_of(view) for view in views]
    stacked = iter([torch.stack(parts, dim=1) for parts in zip(*flat, strict=True)])
    return map_tensors(lambda _: next(stacked), views[0])


def signature(batch: Batch) -> object:
    """What records must agree in to be stacked: the tree, and the type and shape of each tensor behind its rows."""
    match batch:
        case Tensor():
            return (batch.dtype, batch.device, tuple(batch.shape[1:]))
        case tuple() | list():
            return (type(batch), *map(signature, batch))
        case Mapping():
            return tuple((name, signature(part)) for name, part in batch.items())
        case _:
            raise InputError(f"a batch holds tensors, tuples, lists and mappings of them; found {type(batch).__name__}")


def join(batches: Sequence[Batch]) -> Batch:
    """Batches of one signature as one batch, in memory of its own."""
    flat = [tensors_of(batch) for batch in batches]
    joined = iter([torch.cat(parts) for parts in zip(*flat, strict=True)])
    return map_tensors(lambda _: next(joined), batches[0])
