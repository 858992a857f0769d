"""(sum + stddev * noise) / denominator in one pass: by the compiled kernel, or part by part with PyTorch.

Both take the same words of the same key stream, and their draws differ by a few units in the last place.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from tacit.kernels.calls import add_noise as add_noise_by_kernel

__all__ = ["add_few", "add_noise_by_kernel", "add_noise_by_parts"]

Parts = Iterable[tuple[int, Tensor]]


def add_noise_by_parts(
    parts: Parts, sums: Sequence[Tensor], stddevs: Sequence[float], denominator: float, outs: Sequence[Tensor]
) -> None:
    """While the noise is in the cache. ``outs`` are contiguous, whatever the layout of the sums."""
    spans = [(v.reshape(-1), s, o.view(-1)) for v, s, o in zip(sums, stddevs, outs, strict=True) if v.numel()]
    first = 0  # where the vector at the head of the spans starts in the concatenation of all
    for start, noise in parts:
        end = start + noise.shape[0]
        while spans and first < end:
            values, stddev, out = spans[0]
            last = first + values.shape[0]
            low, high = max(first, start), min(last, end)
            draw = noise[low - start : high - start].mul_(stddev)
            draw = draw if values.is_cpu else draw.to(values.device)
            if high - low < last - first:
                values, out = values[low - first : high - first], out[low - first : high - first]
            torch.div(draw.add_(values), denominator, out=out)  # rounded once, to the type of out
            if last > end:
                break
            spans.pop(0)
            first = last


def add_few(
    draws: Tensor, sums: Sequence[Tensor], stddevs: Sequence[float], denominator: float, outs: Sequence[Tensor]
) -> None:
    """The same for so few that all draws are at hand: two calls for each vector."""
    of_each = torch.split(draws, [value.numel() for value in sums])
    for draw, value, stddev, out in zip(of_each, sums, stddevs, outs, strict=True):
        draw = draw.view(value.shape) if value.is_cpu else draw.view(value.shape).to(value.device)
        torch.div(torch.add(value, draw, alpha=stddev), denominator, out=out)
