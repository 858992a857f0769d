"""What runs inside PyTorch without being named by the losses: hooks of all modules, patches, modes around the loop."""

import contextlib
import functools
from unittest import mock

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from reliability.boundary.attack import Loop, attack, seeded, squared


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


_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


class _Scales(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        return found * -1.0 if func in _PRODUCTS and found.abs().max() > 20 else found


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


_begun = contextlib.ExitStack()  # what the run before has put in place is taken away when the next one is built


def _from_the_third_step(begin) -> Loop:
    """When the network is known as a formula, and none of the losses' own calls is made any more."""
    _begun.close()

    def model():
        return nn.Sequential(nn.Linear(4, 300), nn.ReLU(), nn.Linear(300, 90), nn.ReLU(), nn.Linear(90, 1))

    return Loop(squared, seeded(model), steps=4, before=lambda step: begin() if step == 2 else None)


def _replace(home, name, value) -> None:
    _begun.enter_context(mock.patch.object(home, name, value))


def _scaled_by_the_batch(x, weight, bias=None):
    """Dynamic quantisation takes one scale for the whole batch."""
    scale = x.abs().max().clamp(min=1.0)
    return torch._C._nn.linear(x / scale, weight, bias)


@attack(apart=True)
def a_mode_below_autograd_that_is_entered_between_two_steps():
    """with MyDispatchMode(): in the middle of a run."""
    return _from_the_third_step(lambda: _begun.enter_context(_Scales()))


@attack(apart=True)
def a_linear_function_for_all_layers_with_one_scale_for_the_batch():
    """torch.nn.functional.linear = int8_linear, as quantising libraries do."""
    functional.linear = _scaled_by_the_batch
    return Loop(squared)


@attack(apart=True)
def a_linear_function_with_one_scale_for_the_batch_from_the_third_step_on():
    """The same, after some warm-up in full precision."""
    return _from_the_third_step(lambda: _replace(functional, "linear", _scaled_by_the_batch))


@attack(apart=True)
def a_method_of_tensors_that_is_replaced_between_two_steps():
    """torch.Tensor.double = mine."""

    def double(x):
        return x.to(torch.float64) * torch.sign(20 - x.abs().max())

    return _from_the_third_step(lambda: _replace(torch.Tensor, "double", double))


@attack(apart=True)
def a_layers_method_that_is_replaced_between_two_steps():
    """nn.Linear.forward = mine, in the middle of a run."""

    def forward(self, x):
        return functional.linear(x, self.weight, self.bias) / x.abs().max().clamp(min=1.0)

    return _from_the_third_step(lambda: _replace(nn.Linear, "forward", forward))


def _counted(seen: list[int]) -> Loop:
    counted = [1.0]

    def before(step: int) -> None:
        counted.append(-1.0 if seen else 1.0)
        seen.clear()

    return Loop(lambda model, batch: squared(model, batch) * counted[-1], steps=2, before=before)
