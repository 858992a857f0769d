"""All steps of an LSTM in one call, forwards and back, each row by itself."""

from typing import NamedTuple

import torch
from torch import Tensor

from tacit.kernels.calls import INT, LONG, POINTER, Call, Kernel, function
from tacit.kernels.comparisons import close, numbers


class _Calls(NamedTuple):
    forward: Call
    backward: Call


def lstm_forward(gates: Tensor, outputs: Tensor, memories: Tensor, weight: Tensor) -> bool:
    """Fill in all steps: gates [rows, steps, 4 size] hold the projected inputs, biases included, and become the gates.

    Outputs and memories [rows, steps + 1, size] hold the state before the first step. False if the kernel cannot.
    """
    ready = KERNEL.ready(gates.numel() * weight.shape[1], (gates, outputs, memories, weight))
    if ready is None or not _lie_in_order(gates, outputs, memories, weight):
        return False
    return _forward(ready[0], gates, outputs, memories, weight, ready[1])


def _lie_in_order(*tensors: Tensor) -> bool:
    """The kernel reads memory, and does not ask for strides."""
    return all(tensor.is_contiguous() for tensor in tensors)


def _forward(calls: _Calls, gates: Tensor, outputs: Tensor, memories: Tensor, weight: Tensor, threads: int) -> bool:
    pointers = gates.data_ptr(), memories.data_ptr(), outputs.data_ptr(), weight.data_ptr()
    return not calls.forward(*pointers, *gates.shape[:2], weight.shape[1], threads)


def lstm_backward(
    gates: Tensor, memories: Tensor, weight: Tensor, g_outputs: Tensor, g_memory: Tensor
) -> tuple[Tensor, Tensor, Tensor] | None:
    """The gradients of the projected inputs, and of hidden state and memory before the first step.

    Gates and memories are as :func:`lstm_forward` left them, ``g_memory`` is of the last. None if the kernel cannot.
    """
    ready = KERNEL.ready(gates.numel() * weight.shape[1], (gates, memories, weight, g_outputs, g_memory))
    if ready is None or not _lie_in_order(gates, memories, weight):
        return None
    return _backward(ready[0], gates, memories, weight, g_outputs.contiguous(), g_memory, ready[1])


def _backward(
    calls: _Calls, gates: Tensor, memories: Tensor, weight: Tensor, g_outputs: Tensor, g_memory: Tensor, threads: int
) -> tuple[Tensor, Tensor, Tensor] | None:
    found, g_memory = (
        torch.empty_like(gates, memory_format=torch.contiguous_format),
        g_memory.clone(memory_format=torch.contiguous_format),
    )
    back = torch.zeros_like(g_memory)
    pointers = (one.data_ptr() for one in (gates, memories, g_outputs, weight, back, g_memory, found))
    short = calls.backward(*pointers, *gates.shape[:2], weight.shape[1], threads)
    return None if short else (found, back, g_memory)


def _agrees(calls: _Calls) -> bool:
    """On rows and columns that fill tiles and vectors and that do not, with gates on both sides of every formula."""
    for index, (rows, steps, size, threads) in enumerate([(1, 1, 1, 1), (9, 2, 5, 1), (8, 3, 16, 2), (17, 2, 35, 1)]):
        given = 6 * numbers(rows, steps, 4 * size, seed=index), numbers(4 * size, size, seed=index + 9)
        states = numbers(2, rows, size, seed=index + 19)
        if index == 1:
            given[0][4] *= 40  # where e^x leaves float32
            given[0][5] = torch.nan  # must stay with its row
        gradients = numbers(rows, steps, size, seed=index + 29), numbers(rows, size, seed=index + 39)
        found = _all_of(calls, threads, *given, *states, *gradients)
        wanted = _reference(*(one.double() for one in (*given, *states, *gradients)))
        if not all(close(*pair, torch.ones_like(pair[1]), 2e-5) for pair in zip(found, wanted, strict=True)):
            return False
    return True


def _all_of(calls: _Calls, threads: int, projected: Tensor, weight: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """Outputs, memories and the three gradients."""
    gates, (hidden, memory, g_outputs, g_memory) = projected.clone(), others
    outputs, memories = (torch.stack([one] * (gates.shape[1] + 1), 1) for one in (hidden, memory))
    _forward(calls, gates, outputs, memories, weight, threads)
    back = _backward(calls, gates, memories, weight, g_outputs, g_memory, threads)
    return outputs[:, 1:], memories[:, 1:], *(back or ())


def _reference(
    projected: Tensor, weight: Tensor, hidden: Tensor, memory: Tensor, g_outputs: Tensor, g_memory: Tensor
) -> tuple[Tensor, ...]:
    """The same by PyTorch's own operations and its autograd, in float64."""
    with torch.enable_grad():
        leaves = [one.clone().requires_grad_() for one in (projected, hidden, memory)]
        outputs, memories = [leaves[1]], [leaves[2]]
        for step in leaves[0].unbind(1):
            products = (outputs[-1][:, None, :] * weight).sum(2)  # threads of a product would take longer to start
            enter, forget, candidate, leave = (step + products).chunk(4, 1)
            memories.append(forget.sigmoid() * memories[-1] + enter.sigmoid() * candidate.tanh())
            outputs.append(leave.sigmoid() * memories[-1].tanh())
        total = (torch.stack(outputs[1:], 1) * g_outputs).sum() + (memories[-1] * g_memory).sum()
    found = torch.autograd.grad(total, leaves)
    return torch.stack(outputs[1:], 1).detach(), torch.stack(memories[1:], 1).detach(), *found


KERNEL = Kernel(
    "LSTMs",
    lambda loaded: _Calls(
        function(loaded, "tacit_lstm_forward", *[POINTER] * 4, *[LONG] * 3, INT, result=INT),
        function(loaded, "tacit_lstm_backward", *[POINTER] * 7, *[LONG] * 3, INT, result=INT),
    ),
    _agrees,
    enough=1 << 18,
)
