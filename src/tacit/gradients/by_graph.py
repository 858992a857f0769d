"""Small networks of linear layers: nobody watches the forward pass, and three compiled calls do the rest.

What the watch of :mod:`~tacit.gradients.uses` would see also stands in autograd's graph of the losses: every use of a
parameter is an edge to it. So once a model's graph has been seen together with a verified plan (``plans``), a forward
pass that leaves the same graph needs no watch. Any other graph, type or size goes the usual way.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from tacit.gradients.plans import Graph, Plans
from tacit.gradients.record_layout import RecordLayout
from tacit.gradients.uses import WatchUses
from tacit.kernels import library
from tacit.losses import Batch, Losses, ModelLosses, check_one_loss_per_record
from tacit.mechanisms import GaussianSumMechanism, Vectors
from tacit.mechanisms.clipping import SHRINK

_MOST_WORK = 1 << 21  # multiplications of a layer beyond which PyTorch's own products win
_MOST_NODES = 64
_WHOLE = RecordLayout(0, "whole")
_ACCUMULATE = "torch::autograd::AccumulateGrad"


@dataclass(frozen=True, slots=True)
class LinearNode:
    """x W^T + b in autograd's graph."""

    node: Any
    weight: str
    bias: str


def read_graph(root: Any, names: Mapping[int, str]) -> tuple[Graph, list[LinearNode]] | None:
    """The graph's nodes and edges, and the linear layers in it; None if a parameter is used in any other way."""
    if root is None:
        return None
    order = {root: 0}
    queue, graph = [root], []
    found: list[LinearNode] = []
    for node in queue:  # grows while it is walked
        kind, follow = node.name(), node.next_functions
        if kind == "AddmmBackward0" and (linear := _linear(node, follow, names)) is not None:
            found.append(linear)
            follow = follow[1:2]
        elif kind == _ACCUMULATE or len(order) > _MOST_NODES:
            return None
        edges = []
        for child, index in follow:
            if child is not None and child not in order:
                order[child] = len(order)
                queue.append(child)
            edges.append((order.get(child), index))
        graph.append((kind, *edges))
    return (*graph, *((linear.weight, linear.bias) for linear in found)), found


def _linear(node: Any, edges: Any, names: Mapping[int, str]) -> LinearNode | None:
    """bias + x @ weight.T with parameters that are ours."""
    (bias, _), (transposed, _) = edges[0], edges[2]
    if bias is None or transposed is None or bias.name() != _ACCUMULATE or transposed.name() != "TBackward0":
        return None
    weight = transposed.next_functions[0][0]
    if weight is None or weight.name() != _ACCUMULATE:
        return None
    weight_name, bias_name = names.get(id(weight.variable)), names.get(id(bias.variable))
    return None if weight_name is None or bias_name is None else LinearNode(node, weight_name, bias_name)


def trust_graph(values: Tensor, watch: WatchUses, mechanism: GaussianSumMechanism, plans: Plans) -> None:
    """Note the graph of losses whose plan is verified, if this path covers all that the watch has seen."""
    if plans.graph is not None or _kernels() is None or mechanism.flat_clip_norm is None or watch.derived:
        return
    layouts = plans.layouts_of(watch)
    if layouts is None:
        return
    plans.graph = ()  # looked at; () is no graph
    read = read_graph(values.grad_fn, watch.names)
    if read is None or any(layout != _WHOLE for layout in layouts):
        return
    used = sorted((linear.weight, linear.bias) for linear in read[1])
    names = list(mechanism.shapes)
    pairs = sorted(zip(names[::2], names[1::2], strict=False))  # each layer once, its bias right behind its weight
    if len(used) == len(watch.uses) and used == pairs and 2 * len(pairs) == len(names):
        plans.graph = read[0]


def clipped_sum_by_graph(
    losses: Losses,
    params: Mapping[str, Tensor],
    batch: Batch,
    records: int,
    mechanism: GaussianSumMechanism,
    plans: Plans,
) -> tuple[Vectors, Tensor] | None:
    """The clipped sum and the squared norms, or None where the usual way must be gone."""
    clip_norm = mechanism.flat_clip_norm
    if not plans.graph or clip_norm is None or not isinstance(losses, ModelLosses) or not losses.owns(params):
        return None
    versions = [value._version for value in params.values()]
    with torch.enable_grad():
        values = losses.user_losses(losses.model, batch)
    check_one_loss_per_record(values, records)
    read = read_graph(values.grad_fn, {id(value): name for name, value in params.items()})
    if read is None or read[0] != plans.graph or versions != [value._version for value in params.values()]:
        plans.graph = ()
        return None
    inputs = [linear.node._saved_mat1.detach() for linear in read[1]]
    edges = [GradientEdge(linear.node, 0) for linear in read[1]]
    gradients = torch.autograd.grad(values, edges, torch.ones_like(values))
    if not all(_suits(x, g, records) for x, g in zip(inputs, gradients, strict=True)):
        plans.graph = ()
        return None
    return _clip_and_sum(read[1], inputs, gradients, mechanism, clip_norm)


def _suits(x: Tensor, g: Tensor, records: int) -> bool:
    return (
        x.dtype == g.dtype == torch.float32
        and x.is_cpu
        and len(x) == len(g) == records
        and x.numel() * g.shape[1] <= _MOST_WORK
        and x.is_contiguous()
        and g.is_contiguous()
    )


def _clip_and_sum(
    layers: Sequence[LinearNode],
    inputs: Sequence[Tensor],
    gradients: Sequence[Tensor],
    mechanism: GaussianSumMechanism,
    clip_norm: float,
) -> tuple[Vectors, Tensor]:
    kernels = _kernels()
    assert kernels is not None
    records, vectors = len(inputs[0]), len(mechanism.shapes)
    squares = torch.empty(records, vectors, dtype=torch.float64)
    factors = torch.empty(records, dtype=torch.float64)
    column = {name: 8 * index for index, name in enumerate(mechanism.shapes)}
    sizes = [(x.data_ptr(), g.data_ptr(), x.shape[1], g.shape[1]) for x, g in zip(inputs, gradients, strict=True)]
    for layer, (x, g, width, out) in zip(layers, sizes, strict=True):
        kernels.squares(x, g, records, width, out, squares.data_ptr() + column[layer.weight], vectors)
    kernels.factors(squares.data_ptr(), records, vectors, clip_norm, SHRINK, factors.data_ptr())
    sums = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in mechanism.shapes.items()}
    for layer, (x, g, width, out) in zip(layers, sizes, strict=True):
        weight, bias = sums[layer.weight].data_ptr(), sums[layer.bias].data_ptr()
        kernels.sums(x, g, factors.data_ptr(), records, width, out, weight, bias)
    return sums, squares


@dataclass(frozen=True, slots=True)
class _Kernels:
    squares: Callable[..., None]
    factors: Callable[..., None]
    sums: Callable[..., None]


@cache
def _kernels() -> _Kernels | None:
    loaded = library()
    if loaded is None:
        return None
    pointer, size, double = ctypes.c_void_p, ctypes.c_long, ctypes.c_double
    squares, factors, sums = loaded.tacit_linear_squares, loaded.tacit_clip_factors, loaded.tacit_linear_sums
    squares.argtypes = (pointer, pointer, size, size, size, pointer, size)
    factors.argtypes = (pointer, size, size, double, double, pointer)
    sums.argtypes = (pointer, pointer, pointer, size, size, size, pointer, pointer)
    squares.restype = factors.restype = sums.restype = None
    return _Kernels(squares, factors, sums)
