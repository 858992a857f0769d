"""Real data sets from an offline folder, checked before use. Nothing is unpickled."""

from tacit.data.adult import TableData, load_adult
from tacit.data.image_sheets import load_cifar10, load_svhn
from tacit.data.mnist import ImageData, load_fashion_mnist, load_mnist

__all__ = ["ImageData", "TableData", "load_adult", "load_cifar10", "load_fashion_mnist", "load_mnist", "load_svhn"]
