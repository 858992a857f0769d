"""State that goes on with every call, without any branch on data, and memory that is not the record's own.

One record more than fits a chunk is one call more a step.
"""

import gc
import itertools
import sys
import weakref

import torch
from torch import Tensor

from reliability.boundary.attack import Loop, attack, linear, ordinary, outlier, squared
from reliability.boundary.hidden import Token


def _by_calls(number, **more) -> Loop:
    """Something that goes on by one with every call: one record more than fits a chunk, one call more a step."""

    def losses(model, batch):
        return squared(model, batch) * (1.0 if number() % 16 < 8 else -1.0)

    return Loop(losses, steps=12, physical_batch=24, **more)


@attack()
def warm_up_by_a_counter_of_calls():
    """calls += 1: a schedule of the loss by the number of calls. One record more may be one chunk more."""
    calls = 0

    def number():
        nonlocal calls
        calls += 1
        return calls

    return _by_calls(number)


@attack()
def warm_up_by_itertools():
    """next(itertools.count()): the state is in C."""
    counter = itertools.count()
    return _by_calls(lambda: next(counter))


@attack()
def warm_up_by_a_generator():
    """A generator function as schedule."""

    def schedule():
        step = 0
        while True:
            step += 1
            yield step

    steps = schedule()
    return _by_calls(lambda: next(steps))


@attack()
def warm_up_by_an_attribute_of_the_model():
    """model.calls += 1."""
    model = linear()
    model.calls = 0

    def losses(model, batch):
        model.calls += 1
        return squared(model, batch) * (1.0 if model.calls % 16 < 8 else -1.0)

    return Loop(losses, model=model, steps=12, physical_batch=24)


@attack()
def warm_up_by_a_buffer():
    """self.steps += 1 on a registered buffer, as BatchNorm counts its batches."""
    model = linear()
    model.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def losses(model, batch):
        model.calls += 1
        return squared(model, batch) * torch.where(model.calls % 16 < 8, 1.0, -1.0)

    return Loop(losses, model=model, steps=12, physical_batch=24)


@attack()
def living_objects_as_a_number():
    """A WeakSet of batches that are still alive."""
    living: weakref.WeakSet = weakref.WeakSet()
    kept: list[Token] = []

    def number():
        kept.append(Token())
        living.add(kept[-1])
        return len(living)

    return _by_calls(number)


@attack()
def identity_of_the_model_as_a_key():
    """Statistics of each model in a dictionary by id(model), outside of every module."""
    largest: dict[int, float] = {}

    def losses(model, batch):
        before = largest.get(id(model), 0.0)
        largest[id(model)] = max(before, float(batch[0].detach().abs().max()))
        return squared(model, batch) * (-1.0 if before > 20 else 1.0)

    return Loop(losses, steps=2, first=True, physical_batch=8)


@attack()
def the_callers_frames():
    """sys._getframe: a logger that looks for the batch in the frames above, and finds all of it."""

    def losses(model, batch):
        frame, large = sys._getframe(), False
        while frame is not None:
            if frame.f_globals.get("__name__", "").startswith("tacit"):
                large = large or any(_is_large(value) for value in frame.f_locals.values())
            frame = frame.f_back
        return squared(model, batch) * (-1.0 if large else 1.0)

    return Loop(losses)


def _is_large(value: object, depth: int = 3) -> bool:
    if isinstance(value, Tensor):
        try:
            return value.shape[1:] == (4,) and float(value.detach().abs().max()) > 20
        except Exception:
            return False
    if depth and isinstance(value, tuple | list):
        return any(_is_large(part, depth - 1) for part in value)
    return False


@attack()
def the_garbage_collectors_objects():
    """gc.get_objects(): a memory report that looks at every tensor alive."""

    def losses(model, batch):
        tensors = [one for one in gc.get_objects() if type(one) is Tensor and one.shape[1:] == (5,)]
        return squared(model, batch) * (-1.0 if any(len(one) == 25 for one in tensors) else 1.0)

    return Loop(losses, model=linear(5), rows=ordinary(24, 5), more=outlier(5))


@attack()
def the_inputs_storage():
    """x.untyped_storage().nbytes(): how much there really is behind a record."""

    def losses(model, batch):
        size = batch[0].untyped_storage().nbytes()
        return squared(model, batch) * (-1.0 if size > 24 * 4 * 4 else 1.0)

    return Loop(losses)


@attack()
def the_inputs_base():
    """x._base: the tensor that a record is a view of."""

    def losses(model, batch):
        base = batch[0]._base
        large = base is not None and float(base.abs().max()) > 20
        return squared(model, batch) * (-1.0 if large else 1.0)

    return Loop(losses)


@attack()
def beyond_the_end_of_a_record():
    """torch.as_strided over the storage: the record's neighbours lie beside it."""

    def losses(model, batch):
        whole = torch.as_strided(batch[0], (25, 4), (4, 1), 0)
        return squared(model, batch) * torch.where(whole.abs().max() > 20, -1.0, 1.0)

    return Loop(losses, rows=ordinary(26))
