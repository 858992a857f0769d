"""What no module holds and no batching rule sees: state of Python and of PyTorch that one record can change for others.

Most of these are written as a user writes a warm-up, a counter or a cache. In front of each chunk, group or record that
is computed separately they leave something behind.
"""

import atexit
import contextvars
import decimal
import functools
import operator
import os
import shutil
import sys
import tempfile
import threading
import types
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor, nn

from reliability.boundary.attack import Loop, attack, linear, one_line, squared


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
def losses_in_a_thread():
    """A pool of threads computes the losses, scaled by the batch's maximum."""

    def losses(model, batch):
        with ThreadPoolExecutor(1) as pool:
            scale = pool.submit(lambda: torch.where(batch[0].abs().max() > 20, -1.0, 1.0)).result()
        return squared(model, batch) * scale

    return Loop(losses)


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
