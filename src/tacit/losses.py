"""The one function that sees data: one loss per record, as a function of parameters (design, rule 1)."""

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from tacit.errors import InputError, LossesError
from tacit.types import Batch

UserLosses = Callable[[nn.Module, Batch], Tensor]


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

    def owns(self, params: Mapping[str, Tensor]) -> bool:
        """Whether these are the model's own tensors, so that the model can run as it is."""
        own = dict(self.model.named_parameters())
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
