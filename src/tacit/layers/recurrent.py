"""Recurrent layers written out step by step for all rows at once: LSTM, GRU and plain RNN.

The gradient of a step's gates is the gradient of the projected input of that step, so that one use gives the gradients
of all four parameters of a direction: inputs and hidden states are two sets of positions with one set of gradients.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import _SingleLevelFunction
from torch.nn import functional

from tacit.kernels import lstm_backward, lstm_forward
from tacit.layers.record_gradients import RecordGradients, outer_products, shifts
from tacit.layers.whole_rows import applied

if TYPE_CHECKING:
    from tacit.gradients.bookkeeping import ForwardPass

State = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """One step: (projected input, recurrent projection, state) to the state after it, hidden part first.

    ``recurrent_gradients`` turns the gradients of the projected input into those of the recurrent projection, where
    they differ; the step then gives what it needs for it as the last part of the state, which is not carried on.
    """

    step: Callable[[Tensor, Tensor, State], State]
    parts: int
    recurrent_gradients: Callable[[Tensor, Tensor], Tensor] | None = None


def _lstm(projected: Tensor, recurrent: Tensor, state: State) -> State:
    enter, forget, candidate, leave = (projected + recurrent).chunk(4, 1)
    memory = forget.sigmoid() * state[1] + enter.sigmoid() * candidate.tanh()
    return leave.sigmoid() * memory.tanh(), memory


class _WholeLSTM(_SingleLevelFunction):
    """All steps of an LSTM as one operation: autograd need not follow the dozen operations of each step.

    With the gates i, f, o (sigmoid) and a (tanh) of a step: c' = f c + i a and h' = o tanh(c').
    """

    @staticmethod
    def forward(
        ctx: Any, projected: Tensor, hidden: Tensor, memory: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The hidden states after and before all steps, [rows, steps, size], and the memory after the last."""
        gates = torch.empty(projected.shape, dtype=projected.dtype, device=projected.device)  # as the kernel reads it
        gates = gates.copy_(projected) if bias is None else torch.add(projected, bias, out=gates)
        shape = len(hidden), projected.shape[1] + 1, hidden.shape[1]
        memories, outputs = (hidden.new_empty(shape) for _ in range(2))
        memories[:, 0], outputs[:, 0] = memory, hidden
        if not lstm_forward(gates, outputs, memories, weight):
            _forward_by_step(gates, outputs, memories, weight)
        ctx.save_for_backward(gates, memories, weight)
        before = outputs[:, :-1].contiguous()
        ctx.mark_non_differentiable(before)
        return outputs[:, 1:], before, memories[:, -1].clone()

    @staticmethod
    def backward(ctx: Any, g_outputs: Tensor, _: Any, g_memory: Tensor) -> tuple[Tensor | None, ...]:
        given = (*ctx.saved_tensors, g_outputs, g_memory)
        found = lstm_backward(*given)
        return *(_backward_by_step(*given) if found is None else found), None, None


def _forward_by_step(gates: Tensor, outputs: Tensor, memories: Tensor, weight: Tensor) -> None:
    size = outputs.shape[2]
    parts = gates, memories[:, :-1], memories[:, 1:], outputs[:, :-1], outputs[:, 1:]
    for gate, before, after, seen, said in zip(*(part.unbind(1) for part in parts), strict=True):
        gate.addmm_(seen, weight.mT)
        enter, forget, candidate, leave = gate.split(size, 1)
        gate[:, : 2 * size].sigmoid_()
        after.copy_(torch.addcmul(torch.mul(forget, before), enter, candidate.tanh_()))
        said.copy_(torch.mul(leave.sigmoid_(), after.tanh()))


def _backward_by_step(
    gates: Tensor, memories: Tensor, weight: Tensor, g_outputs: Tensor, g_memory: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """From the last step to the first: ``back`` is the gradient of h, ``g_memory`` that of c."""
    enter, forget, candidate, leave = gates.chunk(4, 2)
    seen = memories[:, 1:].tanh()
    through = leave * (1 - seen * seen)  # from h to c
    slopes = [candidate * enter * (1 - enter), memories[:, :-1] * forget * (1 - forget)]
    slopes += [enter * (1 - candidate * candidate), seen * leave * (1 - leave)]
    found = torch.stack(slopes, 2)  # [rows, steps, gates, size]
    back, g_memory = torch.zeros_like(memories[:, 0]), g_memory.clone()
    parts = found, through, forget, g_outputs
    for g, onward, kept, g_said in zip(*(part.unbind(1)[::-1] for part in parts), strict=True):
        back = back + g_said
        g_memory.addcmul_(back, onward)
        g[:, :3].mul_(g_memory[:, None])
        g[:, 3].mul_(back)
        g_memory.mul_(kept)
        back = g.flatten(1) @ weight
    return found.flatten(2), back, g_memory


def _gru(projected: Tensor, recurrent: Tensor, state: State) -> State:
    reset, update, new = projected.chunk(3, 1)
    reset_h, update_h, new_h = recurrent.chunk(3, 1)
    reset, update = (reset + reset_h).sigmoid(), (update + update_h).sigmoid()
    candidate = (new + reset * new_h).tanh()
    return candidate + update * (state[0] - candidate), reset


def _gru_gradients(g: Tensor, resets: Tensor) -> Tensor:
    """The candidate hears the recurrent projection through the reset gate."""
    reset, update, new = g.chunk(3, -1)
    return torch.cat([reset, update, new * resets], -1)


def _plain(activation: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor, State], State]:
    return lambda projected, recurrent, state: (activation(projected + recurrent),)


def _form(
    records: int,
    x: Tensor,
    hidden: Tensor,
    notes: Tensor | None,
    cell: Cell,
    bias: bool,
    g: Tensor,
) -> Sequence[RecordGradients | None]:
    """Of weight_ih, weight_hh, bias_ih, bias_hh, from [rows, steps, ...]."""
    of_hidden = g if cell.recurrent_gradients is None or notes is None else cell.recurrent_gradients(g, notes)
    shift = shifts(records, g) if bias else None
    both = [shift, shift if of_hidden is g or not bias else shifts(records, of_hidden)]
    return [outer_products(records, x, g), outer_products(records, hidden, of_hidden), *both]


def _run_direction(
    run: "ForwardPass", cell: Cell, x: Tensor, state: State, weights: Sequence[Tensor], bias: bool, backwards: bool
) -> tuple[Tensor, State]:
    """One layer in one direction over x [rows, steps, features]."""
    of_input, of_hidden = weights[:2]
    bias_hidden = weights[3].detach() if bias else None
    onward = weights[-1] if len(weights) in (3, 5) else None  # proj_size
    projected = functional.linear(x, run.twin(of_input), run.twin(weights[2]) if bias else None)  # type: ignore[arg-type]
    if not projected.requires_grad and any(map(run.is_trained, weights)):  # the weights of the hidden states alone
        projected.requires_grad_()
    run.computes(of_hidden.shape[0])
    run.computes(of_hidden.shape[1])
    run.multiplies(*of_input.shape, *of_hidden.shape)
    turned = projected.flip(1) if backwards else projected
    if cell.step is _lstm and onward is None:
        outputs, before, memory = applied(_WholeLSTM, turned, *state, of_hidden.detach(), bias_hidden)
        notes = None
        end: State = (outputs[:, -1], memory)
    else:
        states = _step_by_step(run, cell, turned, state, of_hidden.detach(), bias_hidden, onward)
        outputs, before = (torch.stack([one[0] for one in some], 1) for some in (states[1:], states[:-1]))
        notes = torch.stack([one[-1] for one in states[1:]], 1).detach() if cell.recurrent_gradients else None
        end = states[-1][: cell.parts]
    if backwards:
        outputs, before, notes = outputs.flip(1), before.flip(1), None if notes is None else notes.flip(1)
    form = partial(_form, run.records, x, before.detach(), notes, cell, bias)
    run.keep(projected, (x,), tuple(weights[: 4 if bias else 2]), form)
    return outputs, end


def _step_by_step(
    run: "ForwardPass",
    cell: Cell,
    projected: Tensor,
    state: State,
    of_hidden: Tensor,
    bias: Tensor | None,
    onward: Tensor | None,
) -> list[State]:
    """The states before the first step and after each."""
    states = [state]
    for step in projected.unbind(1):
        state = cell.step(step, functional.linear(states[-1][0], of_hidden, bias), states[-1])
        if onward is not None:
            raw = state[0]
            state = (functional.linear(raw, run.twin(onward)), *state[1:])  # type: ignore[arg-type]
            run.keep(state[0], (raw,), (onward,), partial(_onward_form, run.records, raw))
        states.append(state)
    return states


def _onward_form(records: int, x: Tensor, g: Tensor) -> Sequence[RecordGradients | None]:
    return [outer_products(records, x.detach(), g)]


def _recurrent(cell: Cell) -> Callable[..., Any]:
    def rule(run: "ForwardPass", x: Tensor, states: Tensor | Sequence[Tensor], flat: Any, *rest: Any) -> Any:
        if not isinstance(flat, list | tuple):
            return NotImplemented  # a packed sequence: (data, batch sizes, state, weights, ...)
        if any(run.is_of_rows(weight) for weight in flat) or not any(run.is_trained(weight) for weight in flat):
            return NotImplemented
        bias, layers, dropout, training, bidirectional, batch_first = rest
        rows = run.rows_first(x)  # [rows, examples, steps, features] or [rows, steps, examples, features]
        seen = (rows if batch_first else rows.transpose(1, 2)).flatten(0, 1)
        begin = [run.rows_first(part).movedim(1, 0).flatten(1, 2) for part in _all_of(states)]
        directions = 2 if bidirectional else 1
        per = len(flat) // (layers * directions)
        last: list[State] = []
        for layer in range(layers):
            outputs = []
            for index in range(layer * directions, (layer + 1) * directions):
                weights, start = flat[index * per : (index + 1) * per], tuple(part[index] for part in begin)
                output, end = _run_direction(run, cell, seen, start, weights, bias, index % directions == 1)
                outputs.append(output)
                last.append(end)
            seen = torch.cat(outputs, 2) if directions == 2 else outputs[0]
            if dropout and training and layer < layers - 1:
                each = seen.view(run.rows, -1, *seen.shape[1:])
                seen = run.dropped(each, dropout, tuple(each.shape[1:])).flatten(0, 1)
        result = seen.reshape(run.rows, -1, *seen.shape[1:])
        ends = [torch.stack([end[part] for end in last]) for part in range(cell.parts)]
        wrapped = [run.wrap(run.split(end, 1).movedim(1, 0)) for end in ends]
        return run.wrap(result if batch_first else result.transpose(1, 2)), *wrapped

    return rule


def _all_of(states: Tensor | Sequence[Tensor]) -> Sequence[Tensor]:
    return (states,) if isinstance(states, Tensor) else states


_CELLS = {
    "lstm": Cell(_lstm, 2),
    "gru": Cell(_gru, 1, _gru_gradients),
    "rnn_tanh": Cell(_plain(torch.tanh), 1),
    "rnn_relu": Cell(_plain(torch.relu), 1),
}
RECURRENT: dict[Any, Callable[..., Any]] = {getattr(torch, name): _recurrent(cell) for name, cell in _CELLS.items()}


def _single(cell: Cell) -> Callable[..., Any]:
    """nn.LSTMCell and its like are two linear maps and a step."""

    def rule(run: "ForwardPass", x: Tensor, states: Any, *weights: Any) -> Any:
        of_input, of_hidden, *biases = weights
        first, second = biases or (None, None)
        with run:
            states = _all_of(states)
            projected = functional.linear(x, of_input, first)
            after = cell.step(projected, functional.linear(states[0], of_hidden, second), tuple(states))
        return after if cell.parts > 1 else after[0]

    return rule


CELLS: dict[Any, Callable[..., Any]] = {getattr(torch, f"{name}_cell"): _single(cell) for name, cell in _CELLS.items()}
