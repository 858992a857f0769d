"""Paper N, figure 9: reliability diagrams of the MLP by SGLD, BBP and MC dropout, not private, without prior."""

from dp_bnn.mnist import BAYESIAN, Setting
from dp_bnn.reliability_diagrams import draw_diagrams

from tacit.reproduction import Work


def reproduce(work: Work) -> None:
    draw_diagrams(work, [[Setting("mlp", method, prior=False, private=False) for method in BAYESIAN]])
