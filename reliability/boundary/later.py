"""What a record leaves behind in one step and everybody meets in the next: nothing changes within the step that saw it.

Written as users write statistics, flags and histories: losses collect, the loop counts between two steps.
"""

import collections
import functools
import io
import itertools
import queue
import threading
import types

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
