"""Paper N, table 4: calibration of SGLD, MC dropout and SGD on MNIST with the CNN, private or not, with prior or none.

Bayes by Backprop, which the paper's table leaves out, is measured beside them.
"""

from dp_bnn.mnist import measure_calibration, settings

from tacit.reproduction import Work


def reproduce(work: Work) -> None:
    measure_calibration(work, settings("cnn", ("SGLD", "MC Dropout", "SGD", "BBP")))
