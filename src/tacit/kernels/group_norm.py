"""Group normalisation and the ReLU behind it, both ways, and the gradients of scale and shift of all records."""

from typing import NamedTuple

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


def group_norm_forward(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float, *, activated: bool
) -> tuple[Tensor, Tensor, Tensor] | None:
    """The outputs, behind a ReLU if ``activated``, and mean and 1 / spread, [records, groups]; None if it cannot.

    x is [records, channels, ...] in float32, weight and bias [channels].
    """
    given = [one for one in (x, weight, bias) if one is not None]
    if not _suits(x, weight, bias, groups) or (ready := BOTH_WAYS.ready(x.numel(), given)) is None:
        return None
    return _forward(ready[0][0], x.contiguous(), weight, bias, groups, eps, activated, ready[1])


def group_norm_backward(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, inverse: Tensor, g: Tensor, *, activated: bool
) -> tuple[Tensor, Tensor] | None:
    """The gradients of scale and shift, [records, channels]; None if the kernel cannot.

    mean and inverse are those of :func:`group_norm_forward`. g, the gradient by the outputs, is written over by the
    gradient by x.
    """
    given = [one for one in (x, weight, bias, mean, inverse, g) if one is not None]
    lined_up = x.is_contiguous() and g.is_contiguous() and g.shape == x.shape
    if (
        not _suits(x, weight, bias, mean.shape[1])
        or not lined_up
        or (ready := BOTH_WAYS.ready(x.numel(), given)) is None
    ):
        return None
    return _backward(ready[0][1], x, weight, bias, mean, inverse, g, activated, ready[1])


def _suits(x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int) -> bool:
    flat = all(one is None or (one.shape == x.shape[1:2] and one.is_contiguous()) for one in (weight, bias))
    return x.dim() > 1 and x.numel() > 0 and groups > 0 and x.shape[1] % groups == 0 and flat


def _forward(
    call: Call, x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float, activated: bool,
    threads: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    out, (mean, inverse) = torch.empty_like(x), x.new_empty(2, len(x), groups)
    sizes = *x.shape[:2], x.shape[2:].numel(), groups, eps, activated
    call(*_pointers(x, weight, bias), *sizes, *_pointers(out, mean, inverse), threads)
    return out, mean, inverse


def _backward(
    call: Call, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, inverse: Tensor, g: Tensor,
    activated: bool, threads: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    scale, shift = x.new_empty(2, *x.shape[:2])
    sizes = *x.shape[:2], x.shape[2:].numel(), mean.shape[1], activated
    call(*_pointers(x, weight, bias, mean, inverse), *sizes, *_pointers(g, scale, shift), threads)
    return scale, shift


def _pointers(*tensors: Tensor | None) -> list[int | None]:
    return [None if tensor is None else tensor.data_ptr() for tensor in tensors]


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


_CASES = [  # shape, groups: channels of a group, and places that fill no vector, some, runs and more
    ((2, 3, 1), 3),
    ((3, 6, 7), 2),
    ((2, 4, 64), 4),
    ((2, 8, 5, 5), 2),
    ((2, 3, 131), 1),
    ((2, 2, 32, 33), 2),
    ((2, 4, 32, 32), 1),
]


def _both_ways_agree(calls: tuple[Call, Call]) -> bool:
    """Against float64: with and without weight, bias and ReLU, and with a record that is not finite."""
    for index, (shape, groups) in enumerate(_CASES):
        x, g = numbers(*shape, seed=index) + 0.5, numbers(*shape, seed=index + 9) + 0.25
        weight, bias = numbers(shape[1], seed=index + 19) + 0.1, numbers(shape[1], seed=index + 29)
        broken = x.clone()
        broken[1, 0].view(-1)[0] = (torch.nan, torch.inf)[index % 2]
        for activated in (False, True):
            for scale, shift in ((weight, bias), (None, None), (weight, None)):
                how, threads = _How(scale, shift, groups, 1e-3, activated), 1 + index // 5
                whole, kept = (_through(calls, one, how, g, threads) for one in (x, broken))
                if not _is_right(whole, x, how, g):
                    return False
                if any(not torch.equal(one[0], other[0]) for one, other in zip(whole, kept, strict=True)):
                    return False
                if kept[0][1].isfinite().all() or kept[1][1].isfinite().all():  # NaN of the record must not be lost
                    return False
    return True


class _How(NamedTuple):
    weight: Tensor | None
    bias: Tensor | None
    groups: int
    eps: float
    activated: bool


def _through(calls: tuple[Call, Call], x: Tensor, how: _How, g: Tensor, threads: int) -> tuple[Tensor, ...]:
    """The outputs, the gradient by x, and those of scale and shift."""
    out, mean, inverse = _forward(calls[0], x, *how, threads)
    g = g.clone()
    found = _backward(calls[1], x, how.weight, how.bias, mean, inverse, g, how.activated, threads)
    return out, g, *found


def _is_right(found: tuple[Tensor, ...], x: Tensor, how: _How, g: Tensor) -> bool:
    """Whether all are what the formula gives in float64, where the outputs say what passes the ReLU."""
    (weight, bias, groups, eps, activated), of_channel = how, (-1, *[1] * (x.dim() - 2))
    far = x.double()
    scale = torch.ones(x.shape[1], dtype=torch.float64, device="cpu") if weight is None else weight.double()
    parts = far.reshape(len(x), groups, -1)
    off = parts - parts.mean(2, keepdim=True)
    spread = (off.square().mean(2, keepdim=True) + eps).sqrt()
    normal, out = (off / spread).view(x.shape), found[0]
    wanted = normal * scale.view(of_channel) + (0.0 if bias is None else bias.double().view(of_channel))
    size = (normal.abs() * scale.abs().view(of_channel)) + 1.0
    right = close(out, wanted.clamp(min=0.0) if activated else wanted, size, 1e-5)
    back = torch.where(out > 0, g.double(), 0.0) if activated else g.double()
    of_normal = (back * scale.view(of_channel)).reshape(parts.shape)
    of_parts = normal.view(parts.shape)
    products = (of_normal * of_parts).mean(2, keepdim=True)
    by_x = ((of_normal - of_normal.mean(2, keepdim=True) - of_parts * products) / spread).view(x.shape)
    largest = of_normal.abs().amax(2, keepdim=True) * (1.0 + of_parts.abs()) / spread
    right = right and close(found[1], by_x, largest.view(x.shape), 1e-5)
    for one, terms in ((found[2], back * normal), (found[3], back)):
        right = right and close(one, terms.flatten(2).sum(2), terms.abs().flatten(2).sum(2) + 1e-3, 1e-5)
    return right


BOTH_WAYS = Kernel(
    "group normalisation both ways",
    lambda loaded: (
        function(loaded, "tacit_group_norm_forward", *[POINTER] * 3, *[LONG] * 4, DOUBLE, INT, *[POINTER] * 3, INT),
        function(loaded, "tacit_group_norm_backward", *[POINTER] * 5, *[LONG] * 4, INT, *[POINTER] * 3, INT),
    ),
    _both_ways_agree,
    enough=1 << 15,
)
