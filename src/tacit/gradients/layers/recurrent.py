"""Recurrent layers written out step by step, so that their linear maps are seen: LSTM, GRU and plain RNN."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

State = tuple[Tensor, ...]
Cell = Callable[[Tensor, State, Sequence[Tensor]], State]


def _lstm_cell(projected: Tensor, state: State, weights: Sequence[Tensor]) -> State:
    hidden, memory = state
    gates = projected + functional.linear(hidden, weights[1], weights[3] if len(weights) > 3 else None)
    enter, forget, candidate, leave = gates.chunk(4, 1)
    memory = forget.sigmoid() * memory + enter.sigmoid() * candidate.tanh()
    hidden = leave.sigmoid() * memory.tanh()
    if len(weights) in (3, 5):  # proj_size
        hidden = functional.linear(hidden, weights[-1])
    return hidden, memory


def _gru_cell(projected: Tensor, state: State, weights: Sequence[Tensor]) -> State:
    (hidden,) = state
    reset, update, new = projected.chunk(3, 1)
    recurrent = functional.linear(hidden, weights[1], weights[3] if len(weights) > 3 else None)
    reset_h, update_h, new_h = recurrent.chunk(3, 1)
    reset, update = (reset + reset_h).sigmoid(), (update + update_h).sigmoid()
    candidate = (new + reset * new_h).tanh()
    return (candidate + update * (hidden - candidate),)


def _plain_cell(activation: Callable[[Tensor], Tensor]) -> Cell:
    def cell(projected: Tensor, state: State, weights: Sequence[Tensor]) -> State:
        recurrent = functional.linear(state[0], weights[1], weights[3] if len(weights) > 3 else None)
        return (activation(projected + recurrent),)

    return cell


def _run_direction(
    cell: Cell, x: Tensor, state: State, weights: Sequence[Tensor], bias: bool, backwards: bool
) -> tuple[Tensor, State]:
    """One layer in one direction over x [steps, rows, features]."""
    projected = functional.linear(x, weights[0], weights[2] if bias else None)
    outputs = []
    steps = range(len(x) - 1, -1, -1) if backwards else range(len(x))
    for step in steps:
        state = cell(projected[step], state, weights)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if backwards else outputs), state


def _run(
    cell: Cell,
    x: Tensor,
    states: State,
    flat: Sequence[Tensor],
    bias: bool,
    layers: int,
    dropout: float,
    training: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    x = x.transpose(0, 1) if batch_first else x
    directions = 2 if bidirectional else 1
    per = len(flat) // (layers * directions)
    last: list[State] = []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            index = layer * directions + direction
            weights = flat[index * per : (index + 1) * per]
            state = tuple(part[index] for part in states)
            output, end = _run_direction(cell, x, state, weights, bias, direction == 1)
            outputs.append(output)
            last.append(end)
        x = torch.cat(outputs, 2) if directions == 2 else outputs[0]
        if dropout and layer < layers - 1:
            x = functional.dropout(x, dropout, training)
    ends = tuple(torch.stack([end[part] for end in last]) for part in range(len(states)))
    return (x.transpose(0, 1) if batch_first else x, *ends)


def _written_out(cell: Cell) -> Callable[..., Any]:
    def run(x: Tensor, states: Tensor | State, flat: Sequence[Tensor], *rest: Any) -> Any:
        states = (states,) if isinstance(states, Tensor) else tuple(states)
        return _run(cell, x, states, flat, *rest)

    return run


# A packed sequence calls these with other arguments (batch sizes): it is left to the fallback.
WRITTEN_OUT: dict[Any, Callable[..., Any]] = {
    torch.lstm: _written_out(_lstm_cell),
    torch.gru: _written_out(_gru_cell),
    torch.rnn_tanh: _written_out(_plain_cell(torch.tanh)),
    torch.rnn_relu: _written_out(_plain_cell(torch.relu)),
}
