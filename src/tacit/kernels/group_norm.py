"""Group normalisation: the gradients of scale and shift of all records, without a second copy of the layer's output."""

import torch
from torch import Tensor

from tacit.kernels.calls import DOUBLE, INT, LONG, POINTER, Call, Kernel, function
from tacit.kernels.comparisons import close, numbers


def group_norm_rows(x: Tensor, g: Tensor, groups: int, eps: float) -> tuple[Tensor, Tensor] | None:
    """The gradients of scale and shift, [records, channels] each, for x and g [records, channels, ...] in float32.

    None if the kernel cannot.
    """
    if x.shape != g.shape or x.dim() < 2 or x.numel() == 0 or groups < 1 or x.shape[1] % groups:
        return None
    ready = KERNEL.ready(x.numel(), (x, g))
    return None if ready is None else _run(ready[0], x.contiguous(), g.contiguous(), groups, eps, ready[1])


def _run(call: Call, x: Tensor, g: Tensor, groups: int, eps: float, threads: int) -> tuple[Tensor, Tensor]:
    scale, shift = (torch.empty(x.shape[:2], dtype=torch.float32, device="cpu") for _ in range(2))
    pointers = scale.data_ptr(), shift.data_ptr()
    call(x.data_ptr(), g.data_ptr(), *x.shape[:2], x.shape[2:].numel(), groups, eps, *pointers, threads)
    return scale, shift


def _agrees(call: Call) -> bool:
    for index, shape in enumerate([(2, 4, 1), (3, 6, 33), (2, 4, 16), (2, 3, 521), (2, 2, 32, 17)]):  # lanes and runs
        groups = shape[1] // 3 or shape[1]
        x, g = numbers(*shape, seed=index) + 0.5, numbers(*shape, seed=index + 9) + 0.25
        if index == 1:
            x[1, 0, 0] = torch.nan  # must stay with its record
        wanted, sizes = _reference(x.double(), g.double(), groups, 1e-3)
        found = _run(call, x, g, groups, 1e-3, 1 + index // 4)
        if not all(close(*each, 1e-5) for each in zip(found, wanted, sizes, strict=True)):
            return False
    return True


def _reference(x: Tensor, g: Tensor, groups: int, eps: float) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Scale and shift in float64, and the sizes of what is added for them."""
    parts = x.reshape(len(x), groups, -1)
    off = parts - parts.mean(2, keepdim=True)
    products = (off / (off.square().mean(2, keepdim=True) + eps).sqrt()).view(x.shape) * g
    both = products.flatten(2), g.flatten(2)
    return (both[0].sum(2), both[1].sum(2)), (both[0].abs().sum(2), both[1].abs().sum(2))


KERNEL = Kernel(
    "group normalisation",
    lambda loaded: function(loaded, "tacit_group_norm", POINTER, POINTER, *[LONG] * 4, DOUBLE, POINTER, POINTER, INT),
    _agrees,
    enough=1 << 15,
)
