"""Where code writes while records are computed, and neither a call that is looked at nor a version counter says so.

Some write into a buffer of the model when one record comes by: it must not be there afterwards. Others collect in
memory that is shared, large or compiled, and the loop counts between two steps.
"""

import tempfile

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from reliability.boundary.attack import Loop, attack, linear, seeded, squared


class _Marked(nn.Module):
    """A record out of range is written into a buffer."""

    def __init__(self, write) -> None:
        super().__init__()
        self.layer = linear()
        self.write = write
        self.register_buffer("mark", torch.ones(4))

    def forward(self, x):
        if x.max() > 20:
            self.write(self.mark, float(x.max()))
        return self.layer(x)


@attack()
def a_buffer_filled_by_an_initialiser():
    """nn.init.constant_, which passes its arguments on by name."""
    return Loop(model=_Marked(lambda mark, value: nn.init.constant_(mark, value)))


@attack()
def a_buffer_among_several_tensors():
    """torch._foreach_add_, as optimizers and averages of weights use it."""
    return Loop(model=_Marked(lambda mark, value: torch._foreach_add_([mark], value)))


@attack()
def a_buffer_filled_by_an_overload():
    """torch.ops.aten.fill_.Scalar."""
    return Loop(model=_Marked(lambda mark, value: torch.ops.aten.fill_.Scalar(mark, value)))


@attack()
def a_buffer_changed_by_an_activation():
    """F.threshold(..., inplace=True)."""
    return Loop(model=_Marked(lambda mark, value: F.threshold(mark, 5.0, value, inplace=True)))


@attack()
def a_buffer_filled_by_a_script():
    """A function of torch.jit.script: nothing sees its calls, and what it wrote is taken back."""

    @torch.jit.script
    def fill(mark: torch.Tensor, value: float):
        mark.fill_(value)

    return Loop(model=_Marked(fill))


@attack()
def a_tensor_that_is_no_buffer():
    """self.mark[0] = ... of a plain tensor: what was written is taken back."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = linear()
            self.mark = torch.ones(4)

        def forward(self, x):
            if x.max() > 20:
                self.mark[0] = float(x.max())
            return self.layer(x)

    return Loop(model=Model())


def _counted_later(collect, largest) -> Loop:
    """The largest input so far is what the next step subtracts."""
    shift = [0.0]

    def losses(model, batch):
        collect(float(batch[0].abs().max()))
        return squared(model, (batch[0] - shift[0], batch[1]))

    def count(step):
        shift[0] = float(largest())

    return Loop(losses, steps=3, before=count)


def _in_an_array(bank) -> Loop:
    def collect(value):
        bank[1, 1] = max(bank[1, 1], value)

    return _counted_later(collect, lambda: bank[1, 1])


@attack()
def a_large_array_of_another_shape():
    """A memory bank that is a view of its numbers: np.zeros(...).reshape(...)."""
    return _in_an_array(np.zeros(40_000).reshape(200, 200))


@attack()
def a_part_of_a_large_array():
    """bank = table[1:]."""
    return _in_an_array(np.zeros((201, 200))[1:])


@attack()
def a_large_array_of_a_tensor():
    """bank = tensor.numpy(): numpy writes, and PyTorch counts nothing."""
    return _in_an_array(torch.zeros(200, 200).numpy())


@attack()
def a_large_array_in_a_file():
    """np.memmap(mode="w+")."""
    with tempfile.NamedTemporaryFile(delete=False) as file:
        return _in_an_array(np.memmap(file.name, dtype=np.float32, mode="w+", shape=(200, 200)))


@attack()
def a_tensor_of_inference_mode():
    """Prototypes that are kept under torch.inference_mode, which counts no versions."""
    with torch.inference_mode():
        bank = torch.zeros(4)

    def collect(value):
        with torch.inference_mode():
            bank.clamp_(min=value)

    return _counted_later(collect, lambda: bank.max())


@attack()
def a_tensor_by_its_data():
    """queue.data[0] = ...: of a tensor that is no part of the model."""
    queue = nn.ParameterDict({"last": nn.Parameter(torch.zeros(1), requires_grad=False)})

    def collect(value):
        queue["last"].data[0] = max(float(queue["last"]), value)

    return _counted_later(collect, lambda: queue["last"])


class _Scripted(nn.Module):
    largest: float

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0.0
        self.seen = torch.jit.annotate(list[float], [0.0])
        self.register_buffer("kept", torch.zeros(1))

    def forward(self, value: float, how: int):
        if how == 0:
            self.largest = max(self.largest, value)
        elif how == 1:
            self.seen.append(value)
        else:
            self.kept.clamp_(min=value)


def _in_a_script(how, largest) -> Loop:
    module = torch.jit.script(_Scripted())
    return _counted_later(lambda value: module(value, how), lambda: largest(module))


@attack()
def a_number_in_a_script():
    """A module of torch.jit.script keeps its attributes in C++."""
    return _in_a_script(0, lambda module: module.largest)


@attack()
def a_list_in_a_script():
    """The same for a list that it appends to."""
    return _in_a_script(1, lambda module: max(module.seen))


@attack()
def a_buffer_in_a_script():
    """The same for a buffer."""
    return _in_a_script(2, lambda module: module.kept)


@attack()
def a_scripted_model_that_keeps_its_state():
    """A recurrent state that a scripted model carries from one call to the next."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)
            self.state = torch.zeros(4)

        def forward(self, x):
            out = self.layer(x - self.state)
            self.state = torch.maximum(self.state, x.abs().amax(0)).detach()
            return out

    return Loop(model=torch.jit.script(seeded(Recurrent)), steps=3)
