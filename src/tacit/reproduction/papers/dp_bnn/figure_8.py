"""Paper N, figure 8: reliability diagrams of the private MLP by SGLD, BBP and MC dropout, with and without prior."""

from dp_bnn.mnist import BAYESIAN, Setting
from dp_bnn.reliability_diagrams import draw_diagrams

from tacit.reproduction import Work


def reproduce(work: Work) -> None:
    rows = [[Setting("mlp", method, prior, private=True) for method in BAYESIAN] for prior in (True, False)]
    draw_diagrams(work, rows)
