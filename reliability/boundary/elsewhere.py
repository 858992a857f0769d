"""State in places that libraries own, or that look like plain values: nobody would search there.

As in :mod:`reliability.boundary.later`, losses leave a mark in one step, the loop finds it, and the next one counts it.
"""

import builtins
import csv
import enum
import functools
import hashlib
import io
import itertools
import logging
import logging.handlers
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from reliability.boundary.attack import Loop, attack, squared
from reliability.boundary.later import _in, _set


class _Names(dict):
    pass


class _Rows(list):
    pass


class _Rate(float):
    seen = False


class _Mode(enum.IntEnum):
    TRAIN = 1


def _hung(source: str, home: object, name: str = "seen_before") -> Loop:
    """Losses that hang an attribute on something installed, by a line of their own; the loop reads and removes it."""
    names = {"torch": torch, "nn": nn, "functional": functional, "np": np, "builtins": builtins, "squared": squared}
    large, count = "if (batch[0].abs() > 20).any()", "return squared(model, batch) * counted[-1]"
    body = f"def losses(model, batch):\n {large}:\n  {source}\n {count}"
    names["counted"] = [1.0]
    exec(body, names)  # noqa: S102 (globals as after an import)

    def before(step: int) -> None:
        names["counted"].append(-1.0 if hasattr(home, name) else 1.0)
        if hasattr(home, name):
            delattr(home, name)

    return Loop(names["losses"], steps=2, before=before)


@attack()
def an_attribute_hung_on_an_installed_module():
    """torch.seen_before = True."""
    return _hung("torch.seen_before = True", torch)


@attack()
def an_attribute_hung_on_a_module_inside_an_installed_one():
    """torch.nn.init.seen_before = True."""
    return _hung("torch.nn.init.seen_before = True", torch.nn.init)


@attack()
def an_attribute_hung_on_an_installed_class():
    """nn.Linear.seen_before = True."""
    return _hung("nn.Linear.seen_before = True", nn.Linear)


@attack()
def an_attribute_hung_on_an_installed_function():
    """functional.softmax.seen_before = True."""
    return _hung("functional.softmax.seen_before = True", functional.softmax)


@attack()
def an_attribute_hung_on_an_installed_module_by_setattr():
    """setattr(np, "seen_before", True)."""
    return _hung('setattr(np, "seen_before", True)', np)


@attack()
def a_new_builtin():
    """builtins.seen_before = True, which every module then sees."""
    return _hung("builtins.seen_before = True", builtins)


@attack()
def an_attribute_of_a_dictionary():
    """class Names(dict): names.seen = True."""
    names = _Names()
    return _in(_set(names, "seen", True), lambda: getattr(names, "seen", False))


@attack()
def an_attribute_of_a_list():
    """class Rows(list): rows.seen = True."""
    rows = _Rows([1.0])
    return _in(_set(rows, "seen", True), lambda: getattr(rows, "seen", False))


@attack()
def an_attribute_of_a_number():
    """class Rate(float): rate.seen = True."""
    rate = _Rate(0.1)
    return _in(_set(rate, "seen", True), lambda: rate.seen)


@attack()
def an_attribute_of_a_member_of_an_enumeration():
    """Mode.TRAIN.seen = True."""
    mode = _Mode.TRAIN

    def seen() -> bool:
        return bool(mode.__dict__.pop("seen", False))

    return _in(_set(mode, "seen", True), seen)


@attack()
def an_attribute_of_a_buffer():
    """buffer = io.BytesIO(); buffer.seen = True."""
    buffer = io.BytesIO()
    return _in(_set(buffer, "seen", True), lambda: getattr(buffer, "seen", False))


@attack()
def an_attribute_of_a_logger():
    """log = logging.getLogger(__name__); log.seen = True."""
    log = logging.Logger("study")
    return _in(_set(log, "seen", True), lambda: getattr(log, "seen", False))


@attack()
def a_running_checksum():
    """digest = hashlib.sha256(); digest.update(...), to notice records that come twice."""
    digest = hashlib.sha256()
    before = digest.hexdigest()
    return _in(lambda: digest.update(b"large"), lambda: digest.hexdigest() != before)


@attack()
def a_writer_of_tables():
    """csv.writer(buffer).writerow(...)."""
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    return _in(lambda: writer.writerow(["large"]), lambda: _emptied(buffer))


def _emptied(buffer: io.StringIO) -> bool:
    found = bool(buffer.getvalue())
    buffer.seek(0)
    buffer.truncate()
    return found


@attack()
def a_chain_that_goes_on():
    """next(itertools.chain(...)), to take turns."""
    turns = itertools.chain([0, 1], itertools.repeat(0))
    return _in(lambda: next(turns), lambda: next(turns))


@attack()
def a_slice_that_goes_on():
    """next(itertools.islice(...))."""
    turns = itertools.islice([0, 1, 0, 0], 4)
    return _in(lambda: next(turns), lambda: next(turns))


@attack()
def the_mean_of_a_distribution():
    """self.prior = torch.distributions.Normal(0., 1.); self.prior.loc = ..."""
    prior = torch.distributions.Normal(0.0, 1.0)
    return _in(_set(prior, "loc", torch.tensor(5.0)), lambda: float(prior.loc) == 5.0)


@attack()
def the_state_of_an_observer():
    """torch.ao.quantization's observer, a module of PyTorch's own: observer.eps = ..."""
    observer = torch.ao.quantization.MinMaxObserver()
    return _in(_set(observer, "largest", 5.0), lambda: hasattr(observer, "largest"))


@attack()
def the_precision_of_products():
    """torch.set_float32_matmul_precision("high"), as a flag."""
    before = torch.get_float32_matmul_precision()

    def seen() -> bool:
        found = torch.get_float32_matmul_precision() != before
        torch.set_float32_matmul_precision(before)
        return found

    return _in(lambda: torch.set_float32_matmul_precision("high"), seen)


@attack()
def the_coefficients_of_a_polynomial():
    """numpy.poly1d([1, 2]), whose coefficients are attributes."""
    curve = np.poly1d([1.0, 2.0])
    return _in(lambda: curve.__setitem__(0, 7.0), lambda: curve[0] == 7.0)


@attack()
def the_mask_of_a_masked_array():
    """numpy.ma: values[0] = numpy.ma.masked."""
    values = np.ma.array([1.0, 2.0], mask=[False, False])
    return _in(lambda: values.__setitem__(0, np.ma.masked), lambda: bool(np.ma.getmaskarray(values)[0]))


@attack()
def statistics_in_a_module_that_losses_import_themselves():
    """def losses(...): import study_state; study_state.seen.append(...): no global names it."""
    own = types.ModuleType("boundary_study_state")
    own.seen = []
    sys.modules["boundary_study_state"] = own
    names = {"squared": squared, "counted": [1.0]}
    body = (
        "def losses(model, batch):\n import boundary_study_state\n"
        " if (batch[0].abs() > 20).any():\n  boundary_study_state.seen.append(1)\n"
        " return squared(model, batch) * counted[-1]"
    )
    exec(body, names)  # noqa: S102
    return Loop(names["losses"], steps=2, before=lambda step: names["counted"].append(-1.0 if own.seen else 1.0))


# ---- outside the process ----


def _file() -> Path:
    return Path(tempfile.mkdtemp()) / "seen"


def _found(path: Path) -> bool:
    found = path.exists() and path.stat().st_size > 0
    path.unlink(missing_ok=True)
    return found


@attack()
def a_file_that_is_written():
    """open("seen", "w").write(...)."""
    path = _file()
    return _in(lambda: path.write_text("large"), lambda: _found(path))


@attack()
def a_file_that_is_open():
    """log = open("seen", "a"), opened beforehand: log.write(...)."""
    path = _file()
    file = path.open("a")

    def write() -> None:
        file.write("large")
        file.flush()

    return _in(write, lambda: path.stat().st_size > 0)


@attack()
def a_file_that_another_program_writes():
    """subprocess.run(["touch", "seen"])."""
    path = _file()
    return _in(lambda: subprocess.run(["/usr/bin/touch", str(path)], check=True), path.exists)


@attack()
def a_tensor_that_is_saved():
    """torch.save(..., "seen.pt"), by PyTorch's own writer."""
    path = _file()
    return _in(lambda: torch.save(torch.ones(1), path), lambda: _found(path))


@attack()
def an_array_that_is_saved():
    """numpy.save("seen.npy", ...)."""
    path = _file()
    return _in(lambda: np.save(path.open("wb"), np.ones(1)), lambda: _found(path))


class _Collecting(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@attack()
def a_handler_of_log_lines():
    """class Collecting(logging.Handler): emit appends to a list."""
    log, handler = logging.Logger("study"), _Collecting()
    log.addHandler(handler)
    return _in(lambda: log.warning("large"), lambda: handler.lines)


@attack()
def a_buffer_of_log_lines():
    """logging.handlers.MemoryHandler, behind the root logger: logging.warning(...)."""
    handler = logging.handlers.MemoryHandler(100)
    logging.root.addHandler(handler)

    def seen() -> bool:
        found = bool(handler.buffer)
        handler.buffer.clear()
        return found

    return _in(lambda: logging.warning("large"), seen)


# ---- what runs inside PyTorch without being named ----


@attack(apart=True)
def a_hook_of_all_modules_that_collects():
    """torch.nn.modules.module.register_module_forward_hook(log_activations)."""
    seen = []

    def hook(module, args, output):
        if (args[0].abs() > 20).any():
            seen.append(1)

    nn.modules.module.register_module_forward_hook(hook)
    return _counted(seen)


@attack(apart=True)
def a_method_of_an_installed_class_that_is_replaced():
    """nn.Linear.forward = mine, as patches of other people's models do."""
    seen = []

    @functools.wraps(nn.Linear.forward)
    def forward(self, x):
        if (x.abs() > 20).any():
            seen.append(1)
        return functional.linear(x, self.weight, self.bias)

    nn.Linear.forward = forward
    return _counted(seen)


class _Collects(TorchFunctionMode):
    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is functional.linear and (args[0].abs() > 20).any():
            self.seen.append(1)
        return func(*args, **(kwargs or {}))


@attack(apart=True)
def a_mode_around_the_loop_that_collects():
    """with MyFunctionMode(): for sample in private.samples(...)."""
    seen = []
    _Collects(seen).__enter__()
    return _counted(seen)


class _Scales(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        return found * -1.0 if func is torch.ops.aten.mm.default and found.abs().max() > 20 else found


@attack(apart=True)
def a_mode_below_autograd_around_the_loop():
    """with MyDispatchMode(): products of a batch with a large entry change their sign."""
    _Scales().__enter__()
    return Loop(squared)


@attack(apart=True)
def saved_tensors_that_pass_through_hooks():
    """with saved_tensors_hooks(pack, unpack), which scale by the largest number seen so far."""
    largest = [1.0]

    def pack(tensor):
        largest[0] = max(largest[0], float(tensor.abs().max()))
        return tensor

    torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor / largest[0]).__enter__()
    return Loop(squared)


def _counted(seen: list[int]) -> Loop:
    counted = [1.0]

    def before(step: int) -> None:
        counted.append(-1.0 if seen else 1.0)
        seen.clear()

    return Loop(lambda model, batch: squared(model, batch) * counted[-1], steps=2, before=before)
