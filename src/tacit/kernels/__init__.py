"""Small C kernels, compiled on first use where there is a compiler; without one PyTorch does the same, more slowly.

Each is compared with PyTorch when it is first asked for and left out if it differs (``comparisons``). A function here
answers None (or False) where its kernel is off or does not suit the arguments: the caller then asks PyTorch. Names that
need PyTorch are loaded on first use, so that ``status`` can be asked without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tacit.kernels.library import library
from tacit.kernels.state import status

__all__ = [
    "GRAM_ROUNDINGS",
    "KernelWarning",
    "add_noise",
    "convolution_rows",
    "convolution_squares",
    "convolution_sum",
    "dense_rows",
    "gram_squares",
    "group_norm_backward",
    "group_norm_forward",
    "group_norm_rows",
    "layer_norm_rows",
    "library",
    "lstm_backward",
    "lstm_forward",
    "max_pool",
    "max_pool_backward",
    "outer_sum",
    "product_roundings",
    "row_squares",
    "status",
    "uneven_outer_sum",
    "weighted_rows",
]

_HOME = {
    "KernelWarning": "calls",
    "add_noise": "calls",
    "convolution_rows": "calls",
    "convolution_squares": "calls",
    "convolution_sum": "calls",
    "dense_rows": "dense",
    "GRAM_ROUNDINGS": "calls",
    "gram_squares": "calls",
    "group_norm_backward": "group_norm",
    "group_norm_forward": "group_norm",
    "group_norm_rows": "group_norm",
    "layer_norm_rows": "layer_norm",
    "lstm_backward": "lstm",
    "lstm_forward": "lstm",
    "max_pool": "calls",
    "max_pool_backward": "calls",
    "outer_sum": "calls",
    "product_roundings": "calls",
    "row_squares": "calls",
    "uneven_outer_sum": "calls",
    "weighted_rows": "calls",
}

if TYPE_CHECKING:  # the same names for type checkers
    from tacit.kernels.calls import (
        GRAM_ROUNDINGS,
        KernelWarning,
        add_noise,
        convolution_rows,
        convolution_squares,
        convolution_sum,
        gram_squares,
        max_pool,
        max_pool_backward,
        outer_sum,
        product_roundings,
        row_squares,
        uneven_outer_sum,
        weighted_rows,
    )
    from tacit.kernels.dense import dense_rows
    from tacit.kernels.group_norm import group_norm_backward, group_norm_forward, group_norm_rows
    from tacit.kernels.layer_norm import layer_norm_rows
    from tacit.kernels.lstm import lstm_backward, lstm_forward


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
