"""Layer normalisation: the gradients of scale and shift of all records, without normalising once more."""

import torch
from torch import Tensor

from tacit.kernels.calls import INT, LONG, POINTER, Call, Kernel, function
from tacit.kernels.comparisons import close, numbers


def layer_norm_rows(x: Tensor, g: Tensor, mean: Tensor, spread: Tensor) -> tuple[Tensor, Tensor] | None:
    """The sums over positions of g (x - mean) spread and of g, [records, size] each; None if the kernel cannot.

    x and g are [records, positions, size] in float32, mean and spread [records, positions].
    """
    if x.dim() != 3 or x.shape != g.shape or not x.shape[:2] == mean.shape == spread.shape:
        return None
    ready = KERNEL.ready(x.numel(), (x, g, mean, spread))
    if ready is None:
        return None
    return _run(ready[0], x.contiguous(), g.contiguous(), mean.contiguous(), spread.contiguous(), ready[1])


def _run(call: Call, x: Tensor, g: Tensor, mean: Tensor, spread: Tensor, threads: int) -> tuple[Tensor, Tensor]:
    records, positions, size = x.shape
    scale, shift = (torch.empty(records, size, dtype=torch.float32, device="cpu") for _ in range(2))
    given = [tensor.data_ptr() for tensor in (x, g, mean, spread)]
    call(*given, records, positions, size, scale.data_ptr(), shift.data_ptr(), threads)
    return scale, shift


def _agrees(call: Call) -> bool:
    for index, shape in enumerate([(2, 1, 5), (3, 7, 16), (2, 64, 33), (3, 149, 50)]):  # lanes, runs and their tails
        x, g = numbers(*shape, seed=index) + 0.5, numbers(*shape, seed=index + 9) + 0.25
        mean, spread = numbers(*shape[:2], seed=index + 19), numbers(*shape[:2], seed=index + 29) + 2.0
        if index == 1:
            x[1, 0, 0] = torch.nan  # must stay with its record
        products = g.double() * (x.double() - mean.double()[:, :, None]) * spread.double()[:, :, None]
        found = _run(call, x, g, mean, spread, 1 + index // 3)
        for one, terms in zip(found, (products, g.double()), strict=True):
            if not close(one, terms.sum(1), terms.abs().sum(1), 1e-5):
                return False
    return True


KERNEL = Kernel(
    "layer normalisation",
    lambda loaded: function(loaded, "tacit_layer_norm", *[POINTER] * 4, *[LONG] * 3, POINTER, POINTER, INT),
    _agrees,
    enough=1 << 15,
)
