"""Paper B, table 1: accuracy and privacy on MNIST, CIFAR-10, Abalone and Adult; one module for each data set."""

from bayesian_dp.abalone_rows import abalone_rows
from bayesian_dp.adult_rows import adult_rows
from bayesian_dp.cifar10_rows import cifar10_rows
from bayesian_dp.mnist_rows import mnist_rows
from bayesian_dp.worst_case import worst_case_rows

from tacit.reproduction import Work


def reproduce(work: Work) -> None:
    worst_case_rows(work)
    adult_rows(work)
    abalone_rows(work)
    if work.quick:  # the pictures take minutes
        return
    mnist_rows(work)
    cifar10_rows(work)  # the last, as it needs a package of weights
    work.note("the paper's estimator rests on Student's t, which is no bound; individual ones rest on held-out probes")
