"""The user's losses, one row at a time as far as they can see and many at once as far as the processor can see.

``Isolated`` runs a function under one level of vmap: inside, every tensor made of data is the tensor of one row, so
that a statistic of the batch cannot be written down. It watches every call of PyTorch:

- a call that joins parameters to data is computed by a layer rule (``layers``), or with one copy of the parameter a
  row, and noted as a *use*, from which ``bookkeeping`` takes the gradients of records;
- a question about values (``if mask.all()``, ``.item()``) is answered if all rows answer alike, which is what each of
  them would hear alone; else the rows are split by their answers (``SplitError``) and run in parts;
- chance is drawn for each row from a secret of its own (``random_calls``);
- what would let data out, or could look beneath vmap, is refused (LossesError) or left to the path that takes one
  record after the other (``UncoveredError``).
"""

import math
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._C import _functorch as functorch
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

from tacit.errors import LossesError
from tacit.gradients.layers import RULE_OF_FUNCTION
from tacit.gradients.random_calls import RANDOM_CALLS, DrawsOfRows
from tacit.gradients.record_gradients import RecordGradients
from tacit.randomness import RecordChance

Form = Callable[[Tensor], Sequence[RecordGradients | None]]  # of the gradient of the output; one entry per parameter


class UncoveredError(Exception):
    """This cannot be run for many rows at once; it is left to the path that takes one record after the other."""


class SplitError(BaseException):
    """Rows answer a question differently. Not an Exception: a user's ``except Exception`` must not swallow it."""

    def __init__(self, answers: Sequence[Any]) -> None:
        super().__init__()
        self.answers = answers


class RowsError(Exception):
    """With so many rows an operation treats the last ones in another way; a multiple of ``multiple`` is right."""

    def __init__(self, multiple: int) -> None:
        super().__init__(f"needs a multiple of {multiple} rows")
        self.multiple = multiple


@dataclass(slots=True)
class Use:
    """One operation that joins parameters to rows: how its output's gradient becomes gradients of records."""

    edge: GradientEdge
    parameters: tuple[Tensor | None, ...]
    form: Form
    inputs: tuple[tuple[Tensor, int], ...]  # what the form needs, as it was then
    is_end: bool  # no other use lies below it

    def check_inputs(self) -> None:
        """An input that was overwritten after the call is not the one the gradient belongs to."""
        if any(tensor._version != version for tensor, version in self.inputs):
            raise UncoveredError("the input of a layer is changed in place after the layer has used it")


@contextmanager
def as_written() -> Iterator[None]:
    """How the losses run on every path: uncompiled, but told that they are being compiled.

    The operations that were written must be seen, so that compiled models run eagerly. Libraries do without questions
    about values while a graph is traced (Hugging Face: ``if mask.all()``), which would part the records here.
    """
    flags: Any = torch.compiler
    before = flags._is_compiling_flag
    # where torch._dynamo is not loaded nothing is compiled, and importing it takes seconds
    stance = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    flags._is_compiling_flag = True
    try:
        with stance:
            yield
    finally:
        flags._is_compiling_flag = before


@contextmanager
def no_reentrant_checkpoints() -> Iterator[None]:
    """Refuse, in this thread, checkpoints that hide the parameters they use: gradients would be zero without a word."""
    function: Any = torch.utils.checkpoint.CheckpointFunction
    here, original = threading.get_ident(), function.__dict__.get("apply")

    def apply(*args: Any) -> Any:
        if threading.get_ident() == here:
            raise LossesError("checkpoint(use_reentrant=True) hides the parameters it uses; pass use_reentrant=False")
        return super(function, function).apply(*args)

    function.apply = apply
    try:
        yield
    finally:
        if original is None:
            del function.apply
        else:
            function.apply = original


class Watched(TorchFunctionMode):
    """What holds on every path: the model's tensors are read, never written, by code that sees data.

    Args:
        guarded: the model's parameters and buffers.
    """

    def __init__(self, guarded: Iterable[Tensor]) -> None:
        super().__init__()
        self._memory = {tensor.untyped_storage().data_ptr() for tensor in guarded if type(tensor) in _PLAIN}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        return func(*args, **kwargs) if func in _HARMLESS else self.watched(func, args, kwargs)

    def watched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function unless it would write into the model."""
        if func is _GET_DATA and not functorch.is_functorch_wrapped_tensor(args[0]):
            return args[0].detach()  # shares the count of versions, which .data does not: a write would show
        if func in _TO_NUMPY and not functorch.is_functorch_wrapped_tensor(args[0]):
            return func(args[0].detach().clone(), *args[1:], **kwargs)  # memory that nobody else reads
        if func in _REFUSED:
            raise LossesError(_REFUSED[func])
        if _writes(func, kwargs):
            self._check_target(kwargs.get("out", args[0] if args else None))
        return func(*args, **kwargs)

    def _check_target(self, target: Any) -> None:
        if type(target) not in _PLAIN or functorch.is_functorch_wrapped_tensor(target) or not target.numel():
            return
        if target.untyped_storage().data_ptr() in self._memory:
            raise LossesError(
                "the losses write into a parameter or a buffer of the model, which would let data out without noise; "
                "compute on a copy instead"
            )


class Isolated(Watched, DrawsOfRows):
    """One forward pass over ``rows`` rows of which each sees only itself.

    Args:
        leaves: the tensors whose gradients are wanted, by name.
        guarded: the model's parameters and buffers.
        rows: how many rows the batch has.
        records: how many records they belong to, ``rows / records`` rows in a row each.
        chance: of each row.
        private: tensors that hold the records of this step; code inside must not come by them in another way.
        fresh: tensors made inside (``torch.zeros``) get a copy a row, for code that writes data into them.
        any_rows: the last bits may depend on the number of rows, because it is always the same.
    """

    def __init__(
        self,
        leaves: Mapping[str, Tensor],
        guarded: Iterable[Tensor],
        rows: int,
        records: int,
        chance: RecordChance,
        *,
        private: Iterable[Tensor] = (),
        fresh: bool = False,
        any_rows: bool = False,
    ) -> None:
        super().__init__(guarded)
        self._any_rows = any_rows
        self._private = {tensor.untyped_storage().data_ptr() for tensor in private}
        self.rows, self.records, self.chance, self.fresh = rows, records, chance, fresh
        self.names = {id(tensor): name for name, tensor in leaves.items()}
        self.uses: list[Use] = []
        self.copies: list[tuple[Tensor, Tensor]] = []  # a tensor made of parameters, and its copies, one a row
        self.derived: dict[int, Tensor] = {}
        self.stop: BaseException | None = None  # raised again after the pass: user code must not swallow it
        self.draws = 0
        self.multiple = 1  # of rows, so that the last ones are treated like all others
        self.bytes = 0  # of the tensors that were made, as if none had been freed
        self.level = 0
        self._nested = False
        self._token = object()  # marks the tensors of this call

    def run(self, function: Callable[[Any], Any], batch: Any, map_tensors: Any) -> Any:
        """What the function gives for each row, as tensors whose first dimension runs over rows."""
        self.level = functorch._vmap_increment_nesting(self.rows, "error")
        allowed = functorch.get_inplace_requires_grad_allowed()
        functorch.set_inplace_requires_grad_allowed(True)  # for twins and copies, which are made inside
        try:
            rows = map_tensors(lambda tensor: self.wrap(tensor.unsqueeze(1)), batch)
            with as_written(), self:
                result = function(rows)
            if self.stop is not None:
                raise self.stop
            if self.rows % self.multiple and not self._any_rows:
                raise RowsError(self.multiple)
            return map_tensors(self._returned, result) if not isinstance(result, Tensor) else self._returned(result)
        except Exception:
            if self.stop is not None:
                raise self.stop from None
            raise
        finally:
            self.stop = None  # an error and its frames would keep this run, and its tensors, alive
            functorch.set_inplace_requires_grad_allowed(allowed)
            functorch._vmap_decrement_nesting()

    def _returned(self, tensor: Tensor) -> Tensor:
        if torch.is_grad_enabled() and tensor.requires_grad and not self.is_of_rows(tensor):
            tensor = self.copied(tensor)
        return self.rows_first(tensor)

    # What layer rules need

    def is_of_rows(self, tensor: Any) -> bool:
        """Whether a tensor holds data: one tensor for each row."""
        return isinstance(tensor, Tensor) and functorch.is_batchedtensor(tensor)

    def is_trained(self, tensor: Any) -> bool:
        """Whether a tensor is a parameter, or made of parameters alone."""
        return isinstance(tensor, Tensor) and tensor.requires_grad and torch.is_grad_enabled()

    def joins(self, data: Any, *parameters: Any) -> bool:
        """Whether a call joins parameters, at least one of them trained, to data."""
        return (
            self.is_of_rows(data)
            and any(self.is_trained(tensor) for tensor in parameters)
            and not any(self.is_of_rows(tensor) for tensor in parameters)
        )

    def rows_first(self, tensor: Tensor) -> Tensor:
        """The tensor of all rows, [rows, *shape of one]."""
        if self.is_trained(tensor):
            tensor = self.copied(tensor)
        if not functorch.is_batchedtensor(tensor):
            return tensor.expand(self.rows, *tensor.shape)
        dim = functorch.maybe_get_bdim(tensor)
        physical: Tensor = functorch.get_unwrapped(tensor)
        return physical if dim == 0 else physical.movedim(dim, 0)

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

    def twin(self, parameter: Tensor | None) -> Tensor | None:
        """The same numbers for one use: autograd is asked for nothing behind it, so no weight gradient is formed."""
        if parameter is None or not self.is_trained(parameter):
            return parameter
        return parameter.detach().requires_grad_()

    def keep(
        self, output: Tensor, inputs: tuple[Tensor, ...], parameters: tuple[Tensor | None, ...], form: Form
    ) -> None:
        """Note a use. ``output`` is the tensor of all rows as the operation gave it."""
        if not output.requires_grad:
            return
        if torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
            raise UncoveredError("saved tensors pass through hooks (checkpointing)")
        trained = tuple(tensor if self.is_trained(tensor) else None for tensor in parameters)
        edge = get_gradient_edge(output)
        versions = tuple((tensor, tensor._version) for tensor in inputs)
        self.uses.append(Use(edge, trained, form, versions, not any(tensor.requires_grad for tensor in inputs)))

    def copied(self, tensor: Tensor) -> Tensor:
        """A tensor made of parameters with one copy a row, whose gradients are those of the rows."""
        if tensor.is_leaf and id(tensor) not in self.names:  # another model's: it is not trained here
            return tensor.detach()
        leaf = tensor.detach().expand(self.rows, *tensor.shape).requires_grad_()
        self.copies.append((tensor, leaf))
        return self.wrap(leaf)

    # The calls

    def watched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.stop is not None:
            raise self.stop
        try:
            return self._call(func, args, kwargs)
        except (SplitError, UncoveredError, LossesError) as stop:
            self.stop = stop
            raise

    def _call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tensors = _tensors((args, kwargs))
        self._check_kind(func, args, tensors)
        if functorch.maybe_current_level() != self.level:
            return self._call_inside_transform(func, args, kwargs, tensors)
        of_rows = self._check_origin(tensors)
        if func in RANDOM_CALLS:
            return RANDOM_CALLS[func](self, *args, **kwargs)
        if of_rows and func in _QUESTIONS:
            return self._answer(func, args)
        trained = [tensor for tensor in tensors if tensor.requires_grad] if torch.is_grad_enabled() else []
        custom = isinstance(func, _OPERATIONS) and str(func)
        rule = RULE_OF_FUNCTION.get(custom or func)
        if rule is not None and (of_rows or trained):
            output = rule(self, *args, **kwargs)
            if output is not NotImplemented:
                return output
        if trained:
            return self._call_with_parameters(func, args, kwargs, trained, of_rows)
        output = super().watched(func, args, kwargs)
        if self.fresh and not of_rows and isinstance(output, Tensor) and not isinstance(output, torch.nn.Parameter):
            return self.wrap(self.rows_first(output).clone()) if _makes_new(func) else output
        if of_rows:
            self._note_code(func, kwargs, output)
        return self._born(output) if of_rows else output

    def _note_code(self, func: Any, kwargs: Mapping[str, Any], output: Any) -> None:
        if getattr(func, "__name__", "").strip("_") in _SAME_BY_ANY_CODE and "alpha" not in kwargs:
            return
        for tensor in _tensors(output):
            physical = functorch.get_unwrapped(tensor) if functorch.is_batchedtensor(tensor) else tensor
            if tensor.is_floating_point() and tensor.numel() and not physical._is_view():
                self.computes(tensor.numel())

    def _call_with_parameters(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], trained: list[Tensor], of_rows: bool
    ) -> Any:
        known = {id(tensor): tensor for tensor in trained}
        for tensor in trained:
            if not tensor.is_leaf and id(tensor) not in self.derived:
                raise UncoveredError("a tensor with a gradient history of its own comes from outside the losses")
        strangers = {key: t.detach() for key, t in known.items() if t.is_leaf and key not in self.names}
        if of_rows:
            swapped = {key: strangers.get(key, tensor) for key, tensor in known.items()}
            swapped = {key: self.copied(t) if t.requires_grad else t for key, t in swapped.items()}
            result = super().watched(func, *_swap((args, kwargs), swapped))
            self._note_code(func, kwargs, result)
            return self._born(result)
        output = super().watched(func, *_swap((args, kwargs), strangers))
        for tensor in _tensors(output):
            if tensor.requires_grad:
                self.derived[id(tensor)] = tensor
        return output

    def _call_inside_transform(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]
    ) -> Any:
        """The user's own torch.func transforms: fine for data, but uses of parameters could not be told apart there."""
        self._nested = True
        if any(tensor.requires_grad for tensor in tensors):
            raise UncoveredError("parameters are used inside a torch.func transform")
        return super().watched(func, args, kwargs)

    def _check_kind(self, func: Any, args: tuple[Any, ...], tensors: list[Tensor]) -> None:
        """Leave what looks beneath vmap, or brings rules of its own, to the path of one record after the other."""
        if torch._C._len_torch_dispatch_stack():
            raise UncoveredError("a TorchDispatchMode is active inside the losses")
        if func is _CUSTOM_FUNCTION:
            if not args[0].generate_vmap_rule:
                raise UncoveredError(f"{args[0].__name__} is an autograd.Function without generate_vmap_rule=True")
        elif isinstance(func, _OPERATIONS) and str(func) not in RULE_OF_FUNCTION:
            if str(getattr(func, "namespace", func)).partition("::")[0].partition(".")[0] not in ("aten", "prims"):
                raise UncoveredError(f"{func} is a custom operation")
        elif func in _BY_RECORD:
            raise UncoveredError(f"{func.__name__} inside the losses")
        for tensor in tensors:
            if type(tensor) not in _PLAIN:
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
                if origin is not self._token and (origin is not None or not self._nested):
                    raise LossesError(
                        "the losses use a tensor of records that was kept from an earlier call; "
                        "nothing made of records may outlive the call that made it"
                    )
        return found

    def _born(self, output: Any) -> Any:
        """Mark what was made in this call."""
        if isinstance(output, Tensor):
            physical = functorch.get_unwrapped(output) if functorch.is_batchedtensor(output) else output
            self.bytes += 0 if physical._is_view() else physical.nbytes
            output._tacit_run = self._token  # type: ignore[attr-defined]
        elif isinstance(output, tuple | list):
            for part in output:
                self._born(part)
        elif type(output).__name__.endswith("iterator"):
            return iter([self._born(part) for part in output])
        return output

    def _answer(self, func: Any, args: tuple[Any, ...]) -> Any:
        """A question about values, if all rows answer alike."""
        values = self.rows_first(args[0]).detach()
        if values[0].numel() != 1:
            raise UncoveredError("a tensor with several entries is asked for its one value")
        answers = values.reshape(-1).tolist()
        first = answers[0]
        if all(answer == first or (answer != answer and first != first) for answer in answers):
            return func(values.reshape(-1)[0])
        if func is _BOOL:
            answers = [bool(answer) for answer in answers]
            if len(set(answers)) == 1:
                return answers[0]
        raise SplitError([str(answer) for answer in answers])  # NaN is not equal to itself


_T = torch.Tensor
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
_CUSTOM_FUNCTION = torch._functorch.autograd_function.custom_function_call
_OPERATIONS = (torch._ops.OperatorBase, torch._ops.OpOverloadPacket)
_BOOL = _T.__bool__
_QUESTIONS = frozenset({_BOOL, _T.item, _T.__int__, _T.__float__, _T.__index__, torch.is_nonzero, _T.is_nonzero})
_GET_DATA = _T.data.__get__  # type: ignore[attr-defined]
_TO_NUMPY: frozenset[Any] = frozenset((_T.numpy, _T.__array__))
_REFUSED: dict[Any, str] = {
    _T.backward: "the losses call backward(): return one loss per record and leave the gradients to Tacit",
    torch.autograd.backward: "the losses call backward(): return one loss per record and leave the gradients to Tacit",
    _T.data.__set__: "the losses replace the data of a tensor: compute a new one instead",  # type: ignore[attr-defined]
    _T.share_memory_: "the losses share a tensor's memory with other processes",
}
_BY_RECORD = frozenset({torch.autograd.grad, _T.register_hook, _T.requires_grad_, _T.retain_grad})
# Functions whose result for a row is the same by any code: one rounding an entry, moved entries, or each row by itself.
# All others may have one formula for whole vectors and another, which rounds differently, for the rest.
_SAME_BY_ANY_CODE = frozenset({
    "abs", "absolute", "add", "amax", "amin", "baddbmm", "bfloat16", "bmm", "cat", "ceil", "clamp", "clamp_max",
    "clamp_min", "clip", "clone", "concat", "contiguous", "copy", "detach", "div", "divide", "dot", "double",
    "einsum", "empty_like", "fill", "flatten", "flip", "float", "floor", "full_like", "gather", "getitem",
    "group_norm", "half", "hstack", "iadd", "imul", "index_put", "index_select", "isub", "itruediv", "kthvalue",
    "layer_norm", "leaky_relu", "log_softmax", "masked_fill", "masked_scatter", "matmul", "max", "maximum", "mean",
    "median", "min", "minimum", "mm", "mul", "multiply", "mv", "nansum", "neg", "negative", "new_full", "new_ones",
    "new_tensor", "new_zeros", "one_hot", "ones_like", "pad", "pos", "radd", "relu", "relu6", "repeat",
    "repeat_interleave", "reshape", "rmatmul", "rmul", "roll", "round", "rsub", "rtruediv",
    "scaled_dot_product_attention", "scatter", "setitem", "sign", "softmax", "sort", "sqrt", "square", "stack",
    "sub", "subtract", "sum", "take", "take_along_dim", "threshold", "tile", "to", "topk", "tril", "triu",
    "truediv", "trunc", "type", "type_as", "vstack", "where", "zero", "zeros_like",
})  # fmt: skip
_HARMLESS = frozenset(
    {
        *(getattr(_T, name).__get__ for name in ("shape", "dtype", "device", "ndim", "layout", "is_cuda", "is_leaf")),
        *(getattr(_T, name).__get__ for name in ("requires_grad", "is_sparse", "is_nested", "is_quantized")),
        *(_T.size, _T.dim, _T.numel, _T.nelement, _T.is_floating_point, _T.is_complex, _T.is_contiguous, _T.stride),
        *(_T.__len__, _T.ndimension, torch.is_tensor, torch.is_floating_point, torch.numel, _T.get_device),
    }
)


def _tensors(values: Any) -> list[Tensor]:
    """All tensors in arguments."""
    found: list[Tensor] = []
    stack = [values]
    while stack:
        value = stack.pop()
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, tuple | list):
            stack.extend(value)
        elif isinstance(value, dict):
            stack.extend(value.values())
    return found


def _swap(values: Any, swapped: Mapping[int, Tensor]) -> Any:
    """The same arguments with other tensors in place of some."""
    match values:
        case Tensor():
            return swapped.get(id(values), values)
        case tuple() if hasattr(values, "_fields"):
            return type(values)(*(_swap(value, swapped) for value in values))
        case tuple() | list() if not isinstance(values, torch.Size):
            return type(values)(_swap(value, swapped) for value in values)
        case dict():
            return {name: _swap(value, swapped) for name, value in values.items()}
    return values


def _writes(func: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether a function writes into its first argument, or into one that it is given for its result."""
    name = getattr(func, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or name in _WRITING or kwargs.get("out") is not None


_WRITING = frozenset(
    {"__setitem__", "__set__", "__setstate__", "set_data", "__delitem__"}
    | {f"__i{name}__" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor")}
    | {"__ilshift__", "__irshift__", "__imatmul__"}
)


def _makes_new(func: Any) -> bool:
    """Whether a function makes a tensor of nothing but sizes and numbers."""
    name = getattr(func, "__name__", "")
    return name.removeprefix("new_").removesuffix("_like") in (
        "zeros",
        "ones",
        "empty",
        "full",
        "tensor",
        "eye",
        "arange",
    )
