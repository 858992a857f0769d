"""What a record leaves behind in one step and everybody meets in the next: nothing changes within the step that saw it.

Written as users write statistics, flags and histories: losses collect, the loop counts between two steps.
"""

import array
import collections
import ctypes
import functools
import io
import itertools
import mmap
import multiprocessing
import os
import queue
import sqlite3
import threading
import types
import weakref

import numpy as np
import torch

from reliability.boundary.attack import Loop, attack, linear, squared


def _project_module() -> types.ModuleType:
    """A module of the user's project: it collects while losses are computed, and counts from the next step on."""
    source = """
largest, counted = [0.0], 1.0

def collect(x):
    if (x.abs() > 20).any():
        largest.append(-1.0)

def count():
    global counted
    counted = largest[-1] or 1.0
"""
    module = types.ModuleType("boundary_statistics")
    exec(source, module.__dict__)  # noqa: S102 (as if it lay in a file of its own)
    return module


def _counted_later(collect, count, counted, **more) -> Loop:
    """What a record leaves behind counts from the next step on: nothing changes within the step that saw it."""

    def losses(model, batch):
        collect(batch[0])
        return squared(model, batch) * counted()

    return Loop(losses, steps=2, before=lambda step: count(), **more)


def _collects_into(largest: list[float]):
    def collect(x):
        if (x.abs() > 20).any():
            largest.append(-1.0)

    return collect


@attack()
def statistics_in_another_module_counted_after_the_step():
    """import statistics: losses call statistics.collect(x), the loop statistics.count(), losses read .counted."""
    own = _project_module()
    names = {"statistics": own, "squared": squared}
    source = (
        "def losses(model, batch):\n statistics.collect(batch[0])\n return squared(model, batch) * statistics.counted"
    )
    exec(source, names)  # noqa: S102 (the module is a global name, as after an import)
    return Loop(names["losses"], steps=2, before=lambda step: own.count())


def _global_history(body: str) -> Loop:
    """Losses whose inner code names a global list, which the loop counts between two steps."""
    names = {"squared": squared, "history": [1.0], "counted": [1.0]}
    exec(f"def losses(model, batch):\n{body}\n return squared(model, batch) * counted[-1]", names)  # noqa: S102
    return Loop(names["losses"], steps=2, before=lambda step: names["counted"].append(names["history"][-1]))


@attack()
def statistics_in_a_global_that_an_inner_function_names():
    """def note(x): history.append(...), written inside the losses: their own code does not name the list."""
    return _global_history(" def note(x):\n  if (x.abs() > 20).any():\n   history.append(-1.0)\n note(batch[0])")


@attack()
def statistics_in_a_global_that_a_comprehension_names():
    """[history.append(...) for x in batch[0] if ...]: a comprehension is a function of its own."""
    return _global_history(" [history.append(-1.0) for x in (batch[0],) if (x.abs() > 20).any()]")


@attack()
def statistics_in_a_module_that_the_model_holds():
    """self.statistics = statistics, a module of the project."""
    own = _project_module()
    holder = types.SimpleNamespace(statistics=own)
    return _counted_later(lambda x: holder.statistics.collect(x), own.count, lambda: holder.statistics.counted)


@attack()
def statistics_behind_the_append_of_a_list():
    """self.note = largest.append: a bound method of a built-in type."""
    largest = [1.0]
    holder = types.SimpleNamespace(note=largest.append)
    counted = [1.0]

    def collect(x):
        if (x.abs() > 20).any():
            holder.note(-1.0)

    return _counted_later(collect, lambda: counted.append(largest[-1]), lambda: counted[-1])


@attack()
def statistics_on_a_parameter():
    """self.weight.largest = ...: an attribute of a tensor."""
    model = linear()
    model.weight.largest = counted = [1.0]
    model.weight.seen = 1.0

    def collect(x):
        if (x.abs() > 20).any():
            model.weight.seen = -1.0

    return _counted_later(collect, lambda: counted.append(model.weight.seen), lambda: counted[-1], model=model)


def _by_method(make) -> Loop:
    """The same behind a method of a class, whose function holds on to the list."""
    largest, counted = [1.0], [1.0]
    holder = make(_collects_into(largest))
    return _counted_later(holder, lambda: counted.append(largest[-1]), lambda: counted[-1])


@attack()
def statistics_behind_a_static_method():
    """@staticmethod def collect(x)."""

    def make(collect):
        kind = type("Statistics", (), {"collect": staticmethod(collect)})
        return lambda x: kind.collect(x)

    return _by_method(make)


@attack()
def statistics_behind_a_property():
    """@property that gives the function to call."""

    def make(collect):
        thing = type("Statistics", (), {"collect": property(lambda self: collect)})()
        return lambda x: thing.collect(x)

    return _by_method(make)


@attack()
def statistics_behind_a_cached_property():
    """@functools.cached_property, which was asked before."""

    def make(collect):
        found = functools.cached_property(lambda self: collect)
        kind = type("Statistics", (), {"collect": found})
        found.__set_name__(kind, "collect")
        thing = kind()
        thing.collect  # noqa: B018
        return lambda x: thing.collect(x)

    return _by_method(make)


@attack()
def statistics_in_a_text_buffer():
    """print(..., file=buffer), read after the step."""
    buffer, counted = io.StringIO(), [1.0]

    def collect(x):
        if (x.abs() > 20).any():
            buffer.write("!")

    return _counted_later(collect, lambda: counted.append(-1.0 if buffer.getvalue() else 1.0), lambda: counted[-1])


@attack()
def statistics_behind_a_cache():
    """@functools.lru_cache around a function that collects."""

    def make(collect):
        return functools.lru_cache(lambda x: collect(x))

    return _by_method(make)


# ---- in objects of the standard library and of PyTorch ----


def _in(mark, seen) -> Loop:
    counted = [1.0]

    def collect(x):
        if (x.abs() > 20).any():
            mark()

    return _counted_later(collect, lambda: counted.append(-1.0 if seen() else 1.0), lambda: counted[-1])


@attack()
def statistics_in_a_user_dict():
    """collections.UserDict."""
    found = collections.UserDict()
    return _in(lambda: found.update(seen=True), lambda: "seen" in found)


@attack()
def statistics_in_a_user_list():
    """collections.UserList."""
    found = collections.UserList()
    return _in(lambda: found.append(True), lambda: len(found))


@attack()
def statistics_in_a_chain_of_maps():
    """collections.ChainMap."""
    found = collections.ChainMap({})
    return _in(lambda: found.update(seen=True), lambda: "seen" in found)


@attack()
def an_event_that_is_set():
    """threading.Event, as a flag."""
    event = threading.Event()
    return _in(event.set, event.is_set)


@attack()
def a_semaphore_that_is_taken():
    """threading.Semaphore, as a counter."""
    left = threading.Semaphore(5)
    return _in(left.acquire, lambda: left._value < 5)


@attack()
def a_queue_that_is_filled():
    """queue.SimpleQueue."""
    waiting = queue.SimpleQueue()
    return _in(lambda: waiting.put(True), waiting.qsize)


@attack()
def a_cycle_that_goes_on():
    """next(itertools.cycle(...)), to take turns."""
    turns = itertools.cycle([0, 1])
    return _in(lambda: next(turns), lambda: next(turns))


@attack()
def a_view_of_memory():
    """memoryview of bytes."""
    view = memoryview(bytearray(3))
    return _in(lambda: view.__setitem__(0, 1), lambda: view[0])


@attack()
def the_rate_of_an_optimizer():
    """optimizer.param_groups[0]["lr"] = ..., as a warm restart."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    return _in(lambda: optimizer.param_groups[0].update(lr=5.0), lambda: optimizer.param_groups[0]["lr"] == 5.0)


# ---- where Python itself keeps things ----


class _Holder:
    seen = False


def _set(thing, name, value):
    return lambda: setattr(thing, name, value)


@attack()
def statistics_in_a_base_class():
    """class Base: seen = [], of which the model is made."""
    base = type("Base", (), {"seen": []})
    model = type("Model", (base,), {"note": lambda self: self.seen.append(1)})()
    return _in(lambda: model.note(), lambda: base.seen)


@attack()
def statistics_in_a_metaclass():
    """A registry in the class of a class."""
    registry = type("Registry", (type,), {"seen": []})
    kind = registry("Model", (), {})
    return _in(lambda: type(kind).seen.append(1), lambda: registry.seen)


@attack()
def statistics_behind_a_weak_reference():
    """weakref.ref(trainer)().seen = True."""
    holder = _Holder()
    reference = weakref.ref(holder)
    return _in(lambda: setattr(reference(), "seen", True), lambda: holder.seen)


@attack()
def statistics_in_a_dictionary_of_weak_values():
    """weakref.WeakValueDictionary, as a registry of trainers."""
    holder = _Holder()
    registry = weakref.WeakValueDictionary(trainer=holder)
    return _in(lambda: setattr(registry["trainer"], "seen", True), lambda: holder.seen)


@attack()
def statistics_in_an_array_of_numbers():
    """array.array("d", [0.0])."""
    numbers = array.array("d", [0.0])
    return _in(lambda: numbers.__setitem__(0, 1.0), lambda: numbers[0])


@attack()
def statistics_in_a_number_of_c():
    """ctypes.c_double."""
    number = ctypes.c_double(0.0)
    return _in(_set(number, "value", 1.0), lambda: number.value)


@attack()
def statistics_in_shared_memory():
    """multiprocessing.Value, as a counter for all processes."""
    number = multiprocessing.Value("d", 0.0)
    return _in(_set(number, "value", 1.0), lambda: number.value)


@attack()
def statistics_in_mapped_memory():
    """mmap.mmap(-1, 16)."""
    memory = mmap.mmap(-1, 16)
    return _in(lambda: memory.__setitem__(0, 1), lambda: memory[0])


@attack()
def statistics_in_a_data_base():
    """sqlite3.connect(":memory:"), as a log of runs."""
    base = sqlite3.connect(":memory:")
    base.execute("create table seen (x)")
    return _in(
        lambda: base.execute("insert into seen values (1)"),
        lambda: base.execute("select count(*) from seen").fetchone()[0],
    )


@attack()
def statistics_behind_a_read_only_view():
    """types.MappingProxyType of the settings, whose values can be changed all the same."""
    settings = {"seen": []}
    view = types.MappingProxyType(settings)
    return _in(lambda: view["seen"].append(1), lambda: settings["seen"])


@attack()
def statistics_behind_the_values_of_a_dictionary():
    """for history in histories.values(): history.append(...)."""
    histories = {"loss": []}
    values = histories.values()
    return _in(lambda: next(iter(values)).append(1), lambda: histories["loss"])


@attack()
def statistics_in_an_error_that_is_kept():
    """error.add_note(...), on an error made beforehand."""
    error = ValueError("large input")
    return _in(lambda: error.add_note("seen"), lambda: getattr(error, "__notes__", []))


@attack()
def a_function_whose_code_is_replaced():
    """scale.__code__ = other.__code__, as hot reloading does."""

    def scale():
        return 1.0

    return _in(_set(scale, "__code__", (lambda: -1.0).__code__), lambda: scale() < 0)


@attack()
def a_lock_that_stays_taken():
    """threading.Lock(), as a flag."""
    lock = threading.Lock()
    return _in(lambda: lock.acquire(blocking=False), lock.locked)


@attack()
def statistics_behind_a_partial_method():
    """functools.partialmethod."""
    seen = []
    kind = type("Model", (), {"note": functools.partialmethod(lambda self, value: seen.append(value), 1)})
    model = kind()
    return _in(lambda: model.note(), lambda: seen)


@attack()
def statistics_in_an_array_of_objects():
    """np.array([[], []], dtype=object)."""
    histories = np.empty(2, dtype=object)
    histories[0] = []
    return _in(lambda: histories[0].append(1), lambda: histories[0])


@attack()
def statistics_in_the_storage_of_a_tensor():
    """tensor.untyped_storage()[0] = 1, which no version counts."""
    storage = torch.zeros(3).untyped_storage()
    return _in(lambda: storage.__setitem__(0, 1), lambda: storage[0])


@attack()
def a_layer_that_is_frozen_on_the_way():
    """extra.weight.requires_grad_(False), by which the loop goes on."""
    extra = torch.nn.Linear(1, 1)
    return _in(lambda: setattr(extra.weight, "requires_grad", False), lambda: not extra.weight.requires_grad)


@attack()
def a_seed_that_has_children():
    """np.random.SeedSequence.spawn."""
    seeds = np.random.SeedSequence(1)
    return _in(lambda: seeds.spawn(1), lambda: seeds.n_children_spawned)


@attack()
def a_setting_in_the_environment():
    """os.environ["SEEN"] = "1"."""
    os.environ.pop("TACIT_BOUNDARY", None)
    return _in(lambda: os.environ.update(TACIT_BOUNDARY="1"), lambda: os.environ.pop("TACIT_BOUNDARY", None))


@attack()
def a_setting_of_numpy():
    """np.seterr(over="raise")."""
    np.seterr(over="warn")
    return _in(lambda: np.seterr(over="raise"), lambda: np.seterr(over="warn")["over"] == "raise")


@attack()
def a_setting_of_pytorch():
    """torch.use_deterministic_algorithms(True)."""
    torch.use_deterministic_algorithms(False)
    found = torch.are_deterministic_algorithms_enabled
    return _in(
        lambda: torch.use_deterministic_algorithms(True),
        lambda: (found(), torch.use_deterministic_algorithms(False))[0],
    )
