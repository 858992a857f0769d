"""State in places that libraries own, or that look like plain values: nobody would search there.

As in :mod:`reliability.boundary.later`, losses leave a mark in one step, the loop finds it, and the next one counts it.
"""

import builtins
import csv
import enum
import hashlib
import io
import itertools
import logging
import logging.handlers
import sys
import types

import numpy as np
import torch
from torch import nn
from torch.nn import functional

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
