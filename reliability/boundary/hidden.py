"""What no module holds and no batching rule sees: state of Python and of PyTorch that one record can change for others.

Most of these are written as a user writes a warm-up, a counter or a cache. In front of each chunk, group or record that
is computed separately they leave something behind.
"""

import atexit
import contextvars
import decimal
import functools
import gc
import itertools
import operator
import os
import shutil
import sys
import tempfile
import threading
import types
import warnings
import weakref
from pathlib import Path

import torch
from torch import Tensor, nn

from reliability.boundary.attack import Loop, attack, linear, one_line, ordinary, outlier, squared


class Token:
    """Something to hold on to, weakly."""


def _left_behind(mark, marked, **more) -> Loop:
    """A record out of range leaves a mark; while the mark is there, losses change their sign.

    The record stands in front of chunks of eight, and there are two steps: enough time to meet the others.
    """

    def losses(model, batch):
        factor = -1.0 if marked() else 1.0
        if (batch[0].abs() > 20).any():
            mark()
        return squared(model, batch) * factor

    return Loop(losses, steps=2, first=True, physical_batch=8, **more)


def _by_calls(number, **more) -> Loop:
    """Something that goes on by one with every call: one record more than fits a chunk, one call more a step."""

    def losses(model, batch):
        return squared(model, batch) * (1.0 if number() % 16 < 8 else -1.0)

    return Loop(losses, steps=12, physical_batch=24, **more)


# ---- marks under a branch on the data ----


@attack()
def mark_in_a_list():
    """if x.max() > 20: warned.append(True)."""
    box: list[bool] = []
    return _left_behind(lambda: box.append(True), lambda: bool(box))


@attack()
def mark_in_an_enclosing_variable():
    """nonlocal warned; warned = True."""
    warned = False

    def mark():
        nonlocal warned
        warned = True

    return _left_behind(mark, lambda: warned)


@attack()
def mark_in_an_object():
    """An AverageMeter of the script: meter.seen = True."""
    meter = types.SimpleNamespace(seen=False)
    return _left_behind(lambda: setattr(meter, "seen", True), lambda: meter.seen)


@attack()
def mark_in_another_module():
    """A configuration module whose constant is changed."""
    config = types.ModuleType("boundary_config")
    config.seen = False
    sys.modules["boundary_config"] = config
    return _left_behind(
        lambda: setattr(sys.modules["boundary_config"], "seen", True), lambda: sys.modules["boundary_config"].seen
    )


@attack()
def mark_in_the_environment():
    """os.environ["DEBUG"] = "1"."""
    os.environ.pop("BOUNDARY_MARK", None)
    return _left_behind(lambda: os.environ.__setitem__("BOUNDARY_MARK", "1"), lambda: "BOUNDARY_MARK" in os.environ)


@attack()
def mark_in_a_file():
    """A log file that is looked at."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "log"
    return _left_behind(lambda: path.write_text("large"), path.exists)


@attack()
def mark_in_a_context_variable():
    """contextvars.ContextVar, as tracing libraries use it."""
    seen = contextvars.ContextVar("seen", default=False)
    return _left_behind(lambda: seen.set(True), seen.get)


@attack()
def mark_in_thread_local_storage():
    """threading.local()."""
    local = threading.local()
    return _left_behind(lambda: setattr(local, "seen", True), lambda: getattr(local, "seen", False))


@attack()
def mark_by_exhausting_an_iterator():
    """next(iterator, None): a generator has moved on, and nothing shows it."""
    state = iter([False])
    return _left_behind(lambda: next(state, None), lambda: operator.length_hint(state) == 0)


@attack()
def mark_in_a_cache():
    """functools.cache: whether something is cached is state too."""

    @functools.cache
    def helper(key):
        return key

    return _left_behind(lambda: helper("large"), lambda: helper.cache_info().currsize > 0)


@attack()
def mark_by_a_dead_reference():
    """weakref.ref to an object that is dropped when something large is seen."""
    holder = [Token()]
    alive = weakref.ref(holder[0])
    return _left_behind(holder.clear, lambda: alive() is None)


@attack()
def mark_in_the_arithmetic():
    """decimal.getcontext().prec: a setting of the thread."""
    decimal.getcontext().prec = 28
    return _left_behind(lambda: setattr(decimal.getcontext(), "prec", 9), lambda: decimal.getcontext().prec == 9)


@attack()
def mark_in_the_warning_filters():
    """warnings.simplefilter("error") after the first warning."""
    filters = len(warnings.filters)
    return _left_behind(
        lambda: warnings.filterwarnings("ignore", message="boundary"), lambda: len(warnings.filters) > filters
    )


@attack()
def mark_by_grad_mode():
    """torch.set_grad_enabled(False) for a bad batch, and never on again: all others have no gradient."""

    def losses(model, batch):
        if (batch[0].abs() > 20).any():
            torch.set_grad_enabled(False)
        return squared(model, batch)

    return Loop(losses, steps=2, first=True, physical_batch=8)


@attack()
def mark_by_default_type():
    """torch.set_default_dtype(torch.float64) where values are large: later factories give another type."""
    return _left_behind(
        lambda: torch.set_default_dtype(torch.float64), lambda: torch.get_default_dtype() is torch.float64
    )


@attack()
def mark_by_the_number_of_threads():
    """torch.set_num_threads."""
    torch.set_num_threads(1)
    return _left_behind(lambda: torch.set_num_threads(2), lambda: torch.get_num_threads() == 2)


@attack()
def mark_by_training_mode():
    """model.eval() for a bad batch."""
    model = nn.Sequential(linear())

    def losses(model, batch):
        factor = 1.0 if model.training else -1.0
        if (batch[0].abs() > 20).any():
            model.eval()
        return squared(model, batch) * factor

    return Loop(losses, model=model, steps=2, first=True, physical_batch=8)


@attack()
def mark_by_freezing():
    """requires_grad_(False) for a bad batch."""
    model = nn.Sequential(linear(4, 4), linear())

    def losses(model, batch):
        if (batch[0].abs() > 20).any():
            model[0].requires_grad_(False)
        return squared(model, batch)

    return Loop(losses, model=model, steps=2, first=True, physical_batch=8)


@attack()
def mark_by_a_hook():
    """A forward hook that is registered when something large is seen."""
    model = nn.Sequential(linear())

    def losses(model, batch):
        each = squared(model, batch)
        if (batch[0].abs() > 20).any():
            model[0].register_forward_hook(lambda module, x, out: -out)
        return each

    return Loop(losses, model=model, steps=2, first=True, physical_batch=8)


@attack()
def mark_by_an_exception_that_is_caught():
    """try: check(x) except ValueError: failures += 1."""
    failures: list[str] = []

    def check(x: Tensor) -> None:
        if (x.abs() > 20).any():
            raise ValueError("too large")

    def losses(model, batch):
        factor = -1.0 if failures else 1.0
        try:
            check(batch[0])
        except ValueError as error:
            failures.append(one_line(error))
        return squared(model, batch) * factor

    return Loop(losses, steps=2, first=True, physical_batch=8)


@attack()
def mark_by_an_exception_that_is_not_caught():
    """A record raises after it has set a flag: it counts as zero, but the flag stays."""
    failures: list[bool] = []

    def losses(model, batch):
        factor = -1.0 if failures else 1.0
        if (batch[0].abs() > 20).any():
            failures.append(True)
            raise ValueError("too large")
        return squared(model, batch) * factor

    return Loop(losses, steps=2, first=True, physical_batch=8)


@attack()
def mark_in_the_backward_pass():
    """A hook on the loss that notes a large gradient: it runs when the engine is at work, not the losses."""
    seen: list[bool] = []

    class Noted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            if float(gradient.abs().max()) > 1e4:
                seen.append(True)
            return gradient

    def losses(model, batch):
        factor = -1.0 if seen else 1.0
        return (Noted.apply(model(batch[0]))[:, 0] - batch[1]).square() * factor

    return Loop(losses, steps=2, more=(torch.zeros(1, 4), torch.tensor([-1e6])))


# ---- what goes on with every call: no branch on data at all ----


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


@attack(limit="code that searches the process's memory for records finds them")
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
