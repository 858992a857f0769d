"""Paper N, section C.1: what table 4 says of the CNN, for its other network, the MLP with two hidden layers of 1200."""

from dp_bnn.mnist import BAYESIAN, measure_calibration, settings

from tacit.reproduction import Work


def reproduce(work: Work) -> None:
    measure_calibration(work, settings("mlp", BAYESIAN))
