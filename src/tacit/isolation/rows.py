"""A user's function, one row at a time as far as it can see and many at once as far as the processor can see.

``Isolated`` runs a function under one level of vmap: inside, every tensor made of data is the tensor of one row, so
that a statistic of the batch cannot be written down. It watches every call of PyTorch:

- a question about values (``if mask.all()``, ``.item()``) is answered if all rows answer alike, which is what each of
  them would hear alone; else the rows are split by their answers (``SplitError``) and run in parts;
- chance is drawn for each row from a secret of its own (``chance``);
- what would let data out, or could look beneath vmap, is refused (LossesError) or left to the path that takes one
  record after the other (``UncoveredError``).

How calls that join parameters to data become gradients of records is said by ``tacit.gradients.bookkeeping``.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch as functorch
from torch.overrides import TorchFunctionMode

from tacit.errors import LossesError
from tacit.isolation.chance import RANDOM_CALLS, DrawsOfRows
from tacit.isolation.facts import PLAIN_TENSORS
from tacit.isolation.functions import GET_DATA, IS_TRUE, KNOWN, REFUSED, Known, known
from tacit.isolation.indices import out_of_range
from tacit.isolation.surroundings import as_written
from tacit.losses import map_tensors
from tacit.randomness import RecordChance


class UncoveredError(Exception):
    """This cannot be run for many rows at once; it is left to the path that takes one record after the other."""


class SplitError(BaseException):
    """Rows answer a question differently. Not an Exception: a user's ``except Exception`` must not swallow it."""

    def __init__(self, answers: Sequence[Any]) -> None:
        super().__init__()
        self.answers = answers


class AskedError(BaseException):
    """Code that was not told of a graph being traced asks about values; one that is told may do without."""


class RowsError(Exception):
    """With so many rows an operation treats the last ones in another way; a multiple of ``multiple`` is right."""

    def __init__(self, multiple: int) -> None:
        super().__init__(f"needs a multiple of {multiple} rows")
        self.multiple = multiple


class Watched(TorchFunctionMode):
    """What holds on every path: the model's tensors are read, never written, by code that sees data.

    Args:
        guarded: the model's parameters and buffers.
    """

    def __init__(self, guarded: Iterable[Tensor]) -> None:
        super().__init__()
        self._memory = {tensor.untyped_storage().data_ptr() for tensor in guarded if type(tensor) in PLAIN_TENSORS}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        facts = KNOWN.get(func) or known(func)
        kwargs = kwargs or {}
        if facts.trusts_indices and bool(out_of_range(facts.trusts_indices, args, kwargs)):
            raise IndexError(f"an index of {facts.trusts_indices} is out of range")
        return func(*args, **kwargs) if facts.is_harmless else self.checked(facts, func, args, kwargs)

    def checked(self, facts: Known, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function unless it would write into the model, or let a tensor's memory out."""
        if facts.is_handled:
            if func in REFUSED and not _changes_nothing(*args):
                raise LossesError(REFUSED[func])
            if not functorch.is_functorch_wrapped_tensor(args[0]):
                alone = args[0].detach()  # shares the count of versions, which .data does not: a write would show
                return alone if func == GET_DATA else func(alone.clone(), *args[1:], **kwargs)  # nobody reads a clone
        if facts.writes or kwargs.get("inplace") or kwargs.get("out") is not None:
            first = args[0] if args else next(iter(kwargs.values()), None)  # nn.init passes all by name
            self._check_target(kwargs.get("out", first))
        return func(*args, **kwargs)

    def _check_target(self, target: Any) -> None:
        if isinstance(target, tuple | list):  # torch._foreach_add_
            for one in target:
                self._check_target(one)
            return
        if type(target) not in PLAIN_TENSORS or functorch.is_functorch_wrapped_tensor(target) or not target.numel():
            return
        if target.untyped_storage().data_ptr() in self._memory:
            raise LossesError(
                "the losses write into a parameter or a buffer of the model, which would let data out without noise; "
                "compute on a copy instead"
            )


def _changes_nothing(tensor: Any, data: Any = None, *_: Any) -> bool:
    """``model.to(device)`` where the model is there already: each tensor is given the data that it has."""
    return isinstance(data, Tensor) and data.is_set_to(tensor)


class Isolated(Watched, DrawsOfRows):
    """A function of ``rows`` rows of which each sees only itself.

    Args:
        guarded: the model's parameters and buffers.
        rows: how many rows the batch has.
        chance: of each row.
        private: tensors that hold the records of this step; code inside must not come by them in another way.
        fresh: tensors made inside (``torch.zeros``) get a copy a row, for code that writes data into them.
        any_rows: the last bits may depend on the number of rows, because it is always the same.
        told: whether the function is told that a graph is traced. If it is not, a question ends the run (AskedError).
    """

    rules: Mapping[Any, Callable[..., Any]] = {}  # how some functions are called; custom operations by their name

    def __init__(
        self,
        guarded: Iterable[Tensor],
        rows: int,
        chance: RecordChance,
        *,
        private: Iterable[Tensor] = (),
        fresh: bool = False,
        any_rows: bool = False,
        told: bool = True,
    ) -> None:
        super().__init__(guarded)
        self._any_rows, self._told = any_rows, told
        self._private = {tensor.untyped_storage().data_ptr() for tensor in private}
        self.rows, self.chance, self.fresh = rows, chance, fresh
        self.stop: BaseException | None = None  # raised again after the pass: user code must not swallow it
        self.draws = 0
        self.multiple = 1  # of rows, so that the last ones are treated like all others
        self.bytes = 0  # of the tensors that were made, as if none had been freed
        self.level = 0
        self._nested = False
        self._token = object()  # marks the tensors of this call

    def run(self, function: Callable[[Any], Any], batch: Any) -> Any:
        """What the function gives for each row, as tensors whose first dimension runs over rows."""
        self.level = functorch._vmap_increment_nesting(self.rows, "error")
        allowed = functorch.get_inplace_requires_grad_allowed()
        functorch.set_inplace_requires_grad_allowed(True)  # for twins and copies, which are made inside
        try:
            rows = map_tensors(lambda tensor: self.wrap(tensor.unsqueeze(1)), batch)
            with as_written(told=self._told), self:
                result = function(rows)
            if self.stop is not None:
                raise self.stop
            if self.rows % self.multiple and not self._any_rows:
                raise RowsError(self.multiple)
            return map_tensors(self.rows_first, result) if not isinstance(result, Tensor) else self.rows_first(result)
        except Exception:
            if self.stop is not None:
                raise self.stop from None
            raise
        finally:
            self.stop = None  # an error and its frames would keep this run, and its tensors, alive
            functorch.set_inplace_requires_grad_allowed(allowed)
            functorch._vmap_decrement_nesting()

    # What rules need

    def is_of_rows(self, tensor: Any) -> bool:
        """Whether a tensor holds data: one tensor for each row."""
        return isinstance(tensor, Tensor) and functorch.is_batchedtensor(tensor)

    def rows_first(self, tensor: Tensor) -> Tensor:
        """The tensor of all rows, [rows, *shape of one]."""
        if not functorch.is_batchedtensor(tensor) and tensor.requires_grad and torch.is_grad_enabled():
            tensor = self.copied(tensor)
        if not functorch.is_batchedtensor(tensor):
            return tensor.expand(self.rows, *tensor.shape)
        dim = functorch.maybe_get_bdim(tensor)
        physical: Tensor = functorch.get_unwrapped(tensor)
        return physical if dim == 0 else physical.movedim(dim, 0)

    def copied(self, tensor: Tensor) -> Tensor:
        """A parameter, or a tensor made of parameters, where it is asked for as if it held data."""
        return tensor

    def split(self, tensor: Tensor, dim: int = 0) -> Tensor:
        """A dimension that rows were merged into, as two: rows, and what there is of each."""
        return tensor.reshape(*tensor.shape[:dim], self.rows, -1, *tensor.shape[dim + 1 :])

    def wrap(self, tensor: Tensor) -> Tensor:
        """A tensor [rows, *shape] as the function sees it: the tensor of one row."""
        self.bytes += 0 if tensor._is_view() else tensor.nbytes
        wrapped: Tensor = functorch._add_batch_dim(tensor, 0, self.level)
        wrapped._tacit_run = self._token  # type: ignore[attr-defined]
        return wrapped

    def computes(self, entries: int) -> None:
        """Note a function like exp of so many entries a row, whose last few of all PyTorch computes by other code.

        Vectors are taken in pairs, 32 floats at the most, and threads share what is longer than 32,768.
        """
        unit = 32 if entries <= 8 else 32 * torch.get_num_threads()
        self.multiple = math.lcm(self.multiple, unit // math.gcd(unit, entries))

    def multiplies(self, *sizes: int) -> None:
        """Note a product of matrices: with a vector the last few rows are computed in another way."""
        if 1 in sizes:
            self.multiple = math.lcm(self.multiple, 16)

    # The calls

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        facts = KNOWN.get(func) or known(func)
        if facts.is_harmless:
            return func(*args, **(kwargs or {}))
        if self.stop is not None:
            raise self.stop
        try:
            return self.watched(facts, func, args, kwargs or {})
        except (AskedError, SplitError, UncoveredError, LossesError) as stop:
            self.stop = stop
            raise
        except Exception as error:
            error.__dict__.setdefault("operation", getattr(func, "__name__", ""))  # for who has to say what is slow
            raise

    def watched(self, facts: Known, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func is Tensor.requires_grad_ and self.is_of_rows(args[0]) and all((*args[1:], *kwargs.values())):
            return args[0]  # whoever then asks for its gradient inside is left to the other path
        tensors = tensors_in((args, kwargs))
        self._check_kind(facts, func, args, tensors)
        if functorch.maybe_current_level() != self.level:
            return self._call_inside_transform(facts, func, args, kwargs, tensors)
        of_rows = self._check_origin(tensors)
        if of_rows and kwargs.pop("memory_format", None) is not None and not kwargs and func is Tensor.to:
            return args[0]  # how numbers lie in memory is no affair of a single row
        if func in RANDOM_CALLS and (drawn := RANDOM_CALLS[func](self, *args, **kwargs)) is not NotImplemented:
            return drawn
        if of_rows and facts.is_question:
            return self._answer(func, args)
        if of_rows and facts.trusts_indices:
            self._check_indices(facts.trusts_indices, args, kwargs)
        trained = [tensor for tensor in tensors if tensor.requires_grad] if torch.is_grad_enabled() else []
        rule = self.rules.get(facts.name) if of_rows or trained else None
        output = NotImplemented if rule is None else rule(self, *args, **kwargs)
        if output is NotImplemented and trained:
            output = self.with_parameters(facts, func, args, kwargs, trained, of_rows)
        return self.plainly(facts, func, args, kwargs, of_rows) if output is NotImplemented else output

    def with_parameters(self, *call: Any, **_: Any) -> Any:
        """A call with parameters that has no rule; NotImplemented if it is like any other."""
        return NotImplemented

    def plainly(self, facts: Known, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], of_rows: bool) -> Any:
        """As PyTorch does it, unless it would write into the model; what is made of data is marked."""
        if facts.is_handled or facts.writes or "out" in kwargs or kwargs.get("inplace"):
            output = self.checked(facts, func, args, kwargs)
        else:
            output = func(*args, **kwargs)
        if of_rows:
            if not facts.rounds_alike or "alpha" in kwargs:
                self._note_code(output)
            return self.born(output)
        if self.fresh and facts.makes_new and isinstance(output, Tensor) and not isinstance(output, torch.nn.Parameter):
            return self.wrap(self.rows_first(output).clone())
        return output

    def _note_code(self, output: Any) -> None:
        """Functions may have one formula for whole vectors and another, which rounds differently, for the rest."""
        for tensor in tensors_in(output):
            physical = functorch.get_unwrapped(tensor) if functorch.is_batchedtensor(tensor) else tensor
            if tensor.is_floating_point() and tensor.numel() and not physical._is_view():
                self.computes(tensor.numel())

    def _call_inside_transform(
        self, facts: Known, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]
    ) -> Any:
        """The user's own torch.func transforms: fine for data, but uses of parameters could not be told apart there."""
        self._nested = True
        if any(tensor.requires_grad for tensor in tensors):
            raise UncoveredError("parameters are used inside a torch.func transform")
        return self.checked(facts, func, args, kwargs)

    def _check_kind(self, facts: Known, func: Any, args: tuple[Any, ...], tensors: list[Tensor]) -> None:
        """Leave what looks beneath vmap, or brings rules of its own, to the path of one record after the other."""
        if torch._C._len_torch_dispatch_stack():
            raise UncoveredError("a TorchDispatchMode is active inside the losses")
        if func is _CUSTOM_FUNCTION:
            if not args[0].generate_vmap_rule:
                raise UncoveredError(f"{args[0].__name__} is an autograd.Function without generate_vmap_rule=True")
        elif facts.uncovered and facts.name not in self.rules:
            raise UncoveredError(facts.uncovered)
        for tensor in tensors:
            if type(tensor) not in PLAIN_TENSORS:
                raise UncoveredError(f"{type(tensor).__name__} is a tensor with rules of its own")

    def _check_origin(self, tensors: list[Tensor]) -> bool:
        """Whether data takes part. A tensor kept from an earlier call would bring other records in."""
        found = False
        for tensor in tensors:
            if not functorch.is_batchedtensor(tensor):
                if not tensor.requires_grad and tensor.untyped_storage().data_ptr() in self._private and tensor.numel():
                    raise LossesError("the losses read the records of the whole batch behind their batch of one")
            else:
                found = True
                origin = getattr(tensor, "_tacit_run", None)
                if origin is None and not self._nested:
                    raise UncoveredError("a tensor comes from code that makes no calls of Python (TorchScript)")
                if origin is not self._token and origin is not None:
                    raise LossesError(
                        "the losses use a tensor of records that was kept from an earlier call; "
                        "nothing made of records may outlive the call that made it"
                    )
        return found

    def _check_indices(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Ask every row, and leave those that would reach into others to the path of one record after the other."""
        with self:
            if out_of_range(name, args, kwargs):
                raise UncoveredError(f"an index of {name} is negative or too large")

    def born(self, output: Any) -> Any:
        """Mark what was made in this call."""
        if isinstance(output, Tensor):
            physical = functorch.get_unwrapped(output) if functorch.is_batchedtensor(output) else output
            self.bytes += 0 if physical._is_view() else physical.nbytes
            output._tacit_run = self._token  # type: ignore[attr-defined]
        elif isinstance(output, tuple | list):
            for part in output:
                self.born(part)
        elif type(output).__name__.endswith("iterator"):
            return iter([self.born(part) for part in output])
        return output

    def _answer(self, func: Any, args: tuple[Any, ...]) -> Any:
        """A question about values, if all rows answer alike."""
        if not self._told:
            raise AskedError
        values = self.rows_first(args[0]).detach()
        if values[0].numel() != 1:
            raise UncoveredError("a tensor with several entries is asked for its one value")
        answers = values.reshape(-1).tolist()
        first = answers[0]
        if not first and func is not IS_TRUE:
            first, *_ = answers = [str(answer) for answer in answers]  # 0.0 and -0.0 are equal, and are not the same
        if all(answer == first or (answer != answer and first != first) for answer in answers):
            return func(values.reshape(-1)[0])
        if func is IS_TRUE:
            answers = [bool(answer) for answer in answers]
            if len(set(answers)) == 1:
                return answers[0]
        raise SplitError([str(answer) for answer in answers])  # NaN is not equal to itself


_CUSTOM_FUNCTION = torch._functorch.autograd_function.custom_function_call


def tensors_in(values: Any) -> list[Tensor]:
    """All tensors in arguments."""
    if isinstance(values, Tensor):
        return [values]
    found: list[Tensor] = []
    for value in values.values() if isinstance(values, dict) else values if isinstance(values, tuple | list) else ():
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, tuple | list | dict) and value:
            found += tensors_in(value)
    return found
