"""Before anything is charged: the model is tried out on records of our making, so that a refusal costs nothing."""

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tacit.errors import LossesError, RecordMixingError, TacitError
from tacit.gradients import ClippedSum, Isolation, clipped_sum, guard_of
from tacit.isolation import StateGuard, as_written, fill_caches
from tacit.isolation.rows import tensors_in
from tacit.layers import refuse_layers
from tacit.losses import Losses, ModelLosses, count_records, map_tensors, take_records
from tacit.mechanisms import GaussianSumMechanism
from tacit.randomness import global_chance, seed_everything
from tacit.types import Batch

_RECORDS = 8  # so many that all of them failing is the program's error
_HALF = 0.05  # of the largest loss: what half precision may do to the others
_IF_GENERATED = "; tried on generated records: if they are at fault pass example=, a public batch"
_OF_VALUES = (ValueError, AssertionError, ArithmeticError, torch.linalg.LinAlgError)  # type: ignore[attr-defined]  # other records may be fine


def try_out(
    losses: Losses,
    params: Mapping[str, Tensor],
    like: Batch,
    mechanism: GaussianSumMechanism,
    *,
    isolation: Isolation = "records",
    public: bool = False,
    guard: StateGuard | None = None,
) -> ClippedSum:
    """Compute one clipped sum, of which reasons and memory are public; what the engine refuses is refused now.

    Private data is never used: only shapes and dtypes are taken from ``like``, and inputs are generated: standard
    normal floats, and integers 0 and 1, which are valid tokens, classes and counts nearly everywhere. Losses that
    object to the values of all of them (an assertion) are tried out on real records only; any other failure, of shapes
    or types, is refused. ``public=True`` says that ``like`` holds public records, which are used as they are.
    """
    if isinstance(losses, ModelLosses):
        refuse_layers(losses.model)
    batch = _repeated(like) if public else _generated(like)
    if isolation == "records" and getattr(losses, "meeting", None) is None:
        others = map_tensors(lambda tensor: tensor.flip(0), batch) if public else _generated(like, seed=1001)
        _fill_caches(losses, params, guard or guard_of(losses), (batch, others))
    try:
        found = clipped_sum(losses, params, batch, mechanism, chunk=_RECORDS, isolation=isolation, guard=guard)
    except LossesError as error:
        if error.__cause__ is None:
            raise
        if isinstance(error.__cause__, _OF_VALUES) and not public:
            return ClippedSum({}, torch.zeros(0))
        tried = "generated ones, of your data's shapes and types; if they are at fault pass example=, a public batch"
        raise LossesError(f"{error} (tried on {'the public example' if public else tried})") from error.__cause__
    if not found.is_of_parameters:
        raise LossesError(
            "the losses depend on no trained parameter, so that every release would be noise alone: look for no_grad, "
            f"detach, argmax, item or another model in them{'' if public else _IF_GENERATED}"
        )
    _refuse_statistics(losses, params, batch)
    return found


def _fill_caches(losses: Losses, params: Mapping[str, Tensor], guard: StateGuard, batches: tuple[Batch, Batch]) -> None:
    """What the model keeps for later of shapes alone is filled in by records that are public."""

    def one_record(batch: Batch) -> None:
        for told in (False, True):  # as in a run, where it follows from whether they ask about values
            seed_everything(0)
            with as_written(told=told):
                losses(params, map_tensors(lambda tensor: tensor[:1].clone(), batch))

    with global_chance():
        fill_caches(guard, one_record, batches)


def _refuse_statistics(losses: Losses, params: Mapping[str, Tensor], rows: Batch) -> None:
    """Refuse losses that mean something else for a batch than for its records alone.

    Records cannot see each other anyway. But whoever subtracts a batch's mean, or compares a record with the others,
    would otherwise be served with a mean of one record, and without a word.
    """
    try:
        with torch.no_grad(), guard_of(losses), global_chance(), as_written():
            seed_everything(0)  # records of our making: nothing is private here
            before = torch.get_rng_state()
            first, again = (_values(losses, params, rows) for _ in range(2))
            apart = [_values(losses, params, take_records(rows, slice(i, i + 1))) for i in range(count_records(rows))]
            drew = not torch.equal(before, torch.get_rng_state())  # also under a seed of the losses' own
            with _NotesHalfPrecision() as noted:
                _values(losses, params, rows)
    except TacitError:
        raise
    except Exception:
        return  # losses that need gradients, or cannot take a batch: there is nothing to compare
    if first.shape != (len(apart),) or drew or not torch.equal(first, again):
        return  # written for one record, or by chance
    rough = _HALF * first.abs().nan_to_num(0.0, posinf=0.0).max().item() if noted.found else 0.0
    if not torch.allclose(first, torch.cat(apart), rtol=1e-3, atol=1e-6 + rough, equal_nan=True):
        raise RecordMixingError(
            "the losses of a batch are not those of its records alone: something in them looks at the whole batch "
            "(a statistic, a sum, an attention over records), which no private gradient can; write it for each record"
        )


class _NotesHalfPrecision(TorchFunctionMode):
    """Notes whether anything is computed in half precision (bfloat16 weights, autocast), which rounds by the batch."""

    found = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        self.found |= any(tensor.dtype in (torch.bfloat16, torch.float16) for tensor in tensors_in(output))
        return output


def _values(losses: Losses, params: Mapping[str, Tensor], rows: Batch) -> Tensor:
    return losses(params, map_tensors(torch.clone, rows)).detach()


def _repeated(like: Batch) -> Batch:
    rows = torch.arange(_RECORDS) % count_records(like)
    return map_tensors(lambda tensor: tensor[rows.to(tensor.device)], like)


def _generated(like: Batch, seed: int = 1000) -> Batch:
    generator = torch.Generator().manual_seed(seed)

    def fresh(tensor: Tensor) -> Tensor:
        shape = (_RECORDS, *tensor.shape[1:])
        if tensor.is_floating_point() or tensor.is_complex():
            return torch.randn(shape, generator=generator).to(tensor)
        return torch.randint(0, 2, shape, generator=generator).to(tensor)

    return map_tensors(fresh, like)


@functools.cache
def rounds_by_place() -> bool:
    """Whether a matrix product gives equal rows unequal results, by where they lie.

    ``import tacit`` tells MKL not to, but comes too late if products were formed before.
    """
    generator = torch.Generator().manual_seed(0)
    for width in (5, 6, 10, 33):
        row, weights = (torch.randn(size, width, generator=generator) for size in (1, 8))
        for rows in (16, 48, 272):
            found = functional.linear(row.repeat(rows, 1), weights)
            if not bool((found == found[0]).all()):
                return True
    return False
