"""Real data sets from an offline folder or their makers, checked before use. Nothing is unpickled."""

from tacit.data.abalone import load_abalone
from tacit.data.adult import TableData, load_adult
from tacit.data.cifar10 import load_cifar10
from tacit.data.mnist import ImageData, load_fashion_mnist, load_mnist
from tacit.data.svhn import load_svhn

__all__ = [
    "ImageData",
    "TableData",
    "load_abalone",
    "load_adult",
    "load_cifar10",
    "load_fashion_mnist",
    "load_mnist",
    "load_svhn",
]
