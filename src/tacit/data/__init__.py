"""Real data sets from an offline folder, checked before use. Nothing is unpickled."""

from tacit.data.mnist import ImageData, load_mnist

__all__ = ["ImageData", "load_mnist"]
