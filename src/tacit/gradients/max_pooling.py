"""Max pooling by a compiled kernel, bit for bit as PyTorch's.

Only the numbers are computed elsewhere: below autograd, for the time of one call. The graph, what it keeps and its
backward pass are PyTorch's own.
"""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tacit.kernels import max_pool

_ENOUGH = 1 << 14  # entries below which PyTorch is done before the kernel is called
_pool: Any = torch.ops.aten.max_pool2d_with_indices.default


def call_faster(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a max pooling of PyTorch; if it is a large one, the kernel computes it where it can."""
    if args[0].numel() < _ENOUGH:
        return function(*args, **kwargs)
    with _ByKernel():  # type: ignore[no-untyped-call]
        return function(*args, **kwargs)


class _ByKernel(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Stands below autograd and answers the one operation that all max poolings of one and two dimensions become."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and to tell dynamo so would import it, which takes seconds

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = max_pool(*args) if func is _pool and not kwargs else None
        return func(*args, **(kwargs or {})) if found is None else found
