"""Which operations use the parameters: watched from outside for the time of one forward pass.

A function mode of PyTorch sees every call of a PyTorch function, so nothing is attached to the user's model, and
parameters used outside any module (tied weights, raw parameters, functional calls) are seen like the others.
"""

import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tacit.gradients.layers import RULE_OF_FUNCTION, SYMMETRIC, LayerCall
from tacit.gradients.layers.anything import bind_anything
from tacit.gradients.layers.recurrent import WRITTEN_OUT
from tacit.gradients.max_pooling import call_faster


class UncoveredError(Exception):
    """The fast path cannot be sure to be right here; the caller takes the path that is right for any model."""

    def __init__(self, reason: str, *, always: bool = True) -> None:
        super().__init__(reason)
        self.always = always  # whether the same model will fail again on records of the same kind


@dataclass(slots=True)
class Use:
    """One operation that joins parameters to records."""

    name: str
    call: LayerCall
    edge: GradientEdge
    versions: tuple[int, ...]
    shape: torch.Size

    def check_inputs(self) -> None:
        """An input that was overwritten after the call is not the one the gradient belongs to."""
        if self.versions != tuple(tensor._version for tensor in self.call.inputs):
            raise UncoveredError(f"the input of {self.name} was changed in place")


@dataclass(slots=True)
class Derived:
    """A tensor computed from parameters without a dimension of records: what happens to it happens to them."""

    tensor: Tensor
    sources: frozenset[str]
    use: Use | None  # the operation that made it, if that has a rule: it may turn out to hold records after all


def _transparent(function: Any) -> Callable[..., Any]:
    """A function of PyTorch written in Python, such that the calls inside it are seen as well."""
    names = {**function.__globals__, "has_torch_function": lambda *tensors: False}
    twin = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin


_attention = _transparent(functional.multi_head_attention_forward)
_COMPOSED: dict[Any, Callable[..., Any]] = {functional.multi_head_attention_forward: _attention, **WRITTEN_OUT}


def _is_packed(args: tuple[Any, ...]) -> bool:
    """Whether a recurrent layer is called with a packed sequence: (data, batch sizes, state, weights, ...)."""
    return len(args) > 3 and isinstance(args[3], list | tuple)


class WatchUses(TorchFunctionMode):
    """Records the uses of parameters in the calls made while it is active.

    Args:
        parameters: the tensors to watch, by name.
        rows: the number of rows of the batch.
    """

    def __init__(self, parameters: Mapping[str, Tensor], rows: int) -> None:
        super().__init__()
        self.rows = rows
        self.names = {id(tensor): name for name, tensor in parameters.items()}
        self.derived: dict[int, Derived] = {}
        self.uses: list[Use] = []
        self.uncovered: str | None = None  # raised after the forward pass: user code must not catch it
        self._versions = [(tensor, tensor._version) for tensor in parameters.values()]

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _COMPOSED and not _is_packed(args):
            with self:
                return _COMPOSED[func](*args, **kwargs)
        output = call_faster(func, args, kwargs)
        watched = self._watched(args) + self._watched(kwargs.values())
        if watched:
            self._keep(func, args, kwargs, output, watched)
        return output

    def check(self) -> None:
        """Raise where the record of uses cannot be relied on."""
        if any(tensor._version != version for tensor, version in self._versions):
            self.uncovered = "a parameter, or what was computed from it, is changed in place"
        if self.uncovered:
            raise UncoveredError(self.uncovered)
        for use in self.uses:
            use.check_inputs()

    def _derive(self, tensor: Tensor, watched: list[Tensor], use: Use | None) -> None:
        direct = {self.names[id(source)] for source in watched if id(source) in self.names}
        through = (self.derived[id(source)].sources for source in watched if id(source) in self.derived)
        self.derived[id(tensor)] = Derived(tensor, frozenset(direct.union(*through)), use)
        self._versions.append((tensor, tensor._version))

    def _watched(self, values: Iterable[Any]) -> list[Tensor]:
        found = []
        for value in values:
            if isinstance(value, Tensor):
                if id(value) in self.names or id(value) in self.derived:
                    found.append(value)
            elif isinstance(value, list | tuple):
                found += self._watched(value)
        return found

    def _keep(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, watched: list[Tensor]
    ) -> None:
        match output:
            case Tensor():
                if output.requires_grad:
                    self._keep_one(func, args, kwargs, output, watched)
            case tuple() | list() if any(isinstance(part, Tensor) and part.requires_grad for part in output):
                if _other_tensors((args, kwargs), watched):
                    self.uncovered = f"{getattr(func, '__name__', func)} gives several tensors"
                for part in output:
                    if isinstance(part, Tensor):
                        self._derive(part, watched, None)

    def _keep_one(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor, watched: list[Tensor]
    ) -> None:
        if any(output is tensor for tensor in watched):
            return  # x.to(x.dtype) and the like; a change in place shows in the version
        name, call = self._bind(func, args, kwargs, output, watched)
        use = None
        if call is not None:
            versions = tuple(tensor._version for tensor in call.inputs)
            use = Use(name, call, get_gradient_edge(output), versions, output.shape)
            self.uses.append(use)
        if use is None or use.call.shared:
            self._derive(output, watched, use)

    def _bind(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor, watched: list[Tensor]
    ) -> tuple[str, LayerCall | None]:
        if not _other_tensors((args, kwargs), watched) and func not in _EXPANDING:
            return "", None
        rule = RULE_OF_FUNCTION.get(func)
        if rule is not None:
            if rule.name in SYMMETRIC:
                flags = [any(arg is tensor for tensor in watched) for arg in args[:2]]
                kwargs = {**kwargs, "is_parameter": flags}
            try:
                call = rule.bind(output, *args, **kwargs)
            except TypeError:  # a form of the call that the rule does not know
                call = None
            if call is not None and all(any(tensor is p for p in call.parameters) for tensor in watched):
                if all(size % self.rows for size in output.shape[: call.record_dims]) and not call.shared:
                    return "", None  # no dimension can hold the records
                return rule.name, call
        if output.dim() and output.shape[0] == self.rows:
            return "anything", bind_anything(func, output, args, kwargs, watched)
        return "", None


_EXPANDING = frozenset(function for function, rule in RULE_OF_FUNCTION.items() if rule.name == "expand")


def _other_tensors(values: Any, watched: list[Tensor]) -> bool:
    """Whether an operation takes a tensor besides the watched ones."""
    match values:
        case Tensor():
            return not any(values is tensor for tensor in watched)
        case tuple() | list():
            return any(_other_tensors(value, watched) for value in values)
        case dict():
            return any(_other_tensors(value, watched) for value in values.values())
    return False
