"""Small C kernels, compiled on first use where there is a compiler; without one PyTorch does the same, more slowly."""

from tacit.kernels.library import library

__all__ = ["library"]
