"""Paper B, table 1: accuracy and privacy on MNIST, CIFAR-10, Abalone and Adult; one module for each data set."""

from importlib.util import find_spec

from bayesian_dp.abalone_rows import abalone_rows
from bayesian_dp.adult_rows import adult_rows
from bayesian_dp.mnist_rows import mnist_rows

from tacit.reproduction import Work


def reproduce(work: Work) -> None:
    adult_rows(work)
    abalone_rows(work)
    if work.quick:  # the pictures take minutes
        return
    if find_spec("bayesian_dp.cifar10_rows") is not None:
        from bayesian_dp.cifar10_rows import cifar10_rows

        cifar10_rows(work)
    mnist_rows(work)
    work.note("the paper's estimator rests on Student's t, which is no bound; individual ones rest on held-out probes")
