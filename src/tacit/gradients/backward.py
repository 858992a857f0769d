"""The backward pass: the gradient of a use's output is taken when it comes by, and its memory is free for the next.

Asked for all of them at once, autograd would hold them all until its end, and such memory is new at every step. So it
is asked only for those below which no other use lies; on its way there it must come by the others.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tacit.gradients.assembly import Parts
from tacit.gradients.uses import Use


def find_ends(uses: Sequence[Use]) -> frozenset[int]:
    """Which uses have no other one below them in autograd's graph."""
    nodes = {use.edge.node for use in uses}
    above = _nodes_above(nodes)
    return frozenset(index for index, use in enumerate(uses) if use.edge.node not in above)


def _nodes_above(targets: set[Any]) -> set[Any]:
    """The targets from which another target can be reached."""
    reaches: dict[Any, bool] = {}
    for start in targets:
        stack = [start]
        while stack:
            node = stack[-1]
            children = [child for child, _ in node.next_functions if child is not None]
            if waiting := [child for child in children if child not in reaches]:
                stack += waiting
                continue
            stack.pop()
            reaches[node] = any(child in targets or reaches[child] for child in children)
    return {node for node in targets if reaches[node]}


def run_backward(values: Tensor, parts: Parts, ends: frozenset[int]) -> None:
    """One backward pass without weight gradients; every use's gradient goes to ``parts``."""
    uses = parts.watch.uses
    keep = bool(parts.watch.derived)
    asked = sorted(ends)
    handles = [
        use.edge.node.register_prehook(partial(_pass_on, parts, index, use.edge.output_nr))
        for index, use in enumerate(uses)
        if index not in ends
    ]
    try:
        edges = [uses[index].edge for index in asked]
        found = torch.autograd.grad(values, edges, torch.ones_like(values), allow_unused=True, retain_graph=keep)
    finally:
        for handle in handles:
            handle.remove()
    for index, gradient in zip(asked, found, strict=True):
        parts.take(index, gradient)


def _pass_on(parts: Parts, index: int, output: int, gradients: Sequence[Tensor | None]) -> None:
    parts.take(index, gradients[output])
