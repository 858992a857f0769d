"""Bayes by Backprop (Blundell et al. 2015): a standard deviation for every weight, by stochastic gradient descent.

It is mean-field variational inference, as paper N (B.1) writes it: w = mu + log(1 + exp(rho)) e, and the descent of
equation 7 on (mu, rho). One draw of w per step, shared by all records: every further draw would be one more release.
"""

from torch import nn

from tacit.inference.descent import Descent, PlainDescent
from tacit.inference.gaussian_families import MeanField
from tacit.inference.method import INFERENCE_METHODS
from tacit.inference.priors import GaussianPrior, Prior
from tacit.inference.step_sizes import StepSize
from tacit.inference.variational import VariationalInference
from tacit.losses import UserLosses

_PAPER_N = GaussianPrior(0.1)


def bayes_by_backprop(
    model: nn.Module,
    losses: UserLosses,
    *,
    dataset_size: int,
    learning_rate: float | StepSize = 0.25,
    prior: Prior = _PAPER_N,
    initial_stddev: float = 0.02,
    momentum: float = 0.0,
    temperature: float = 1.0,
    average: float = 0.0,
    seed: int = 0,
) -> VariationalInference:
    """Bayes by Backprop for :func:`tacit.train`; the arguments are those of :class:`VariationalInference`.

    The default rate and prior are paper N's (C.1). It clips the gradient at the drawn weights, where the paper clips
    those of mu and rho together; ``tacit.inference.variational`` says why that is the same privacy for less noise.
    """
    descent: Descent = PlainDescent(learning_rate, momentum)
    return VariationalInference(
        model, losses, dataset_size, prior, MeanField(), descent, initial_stddev, temperature, average, seed
    )


INFERENCE_METHODS["bayes by backprop"] = lambda model, losses: bayes_by_backprop(
    model, losses, dataset_size=10_000, learning_rate=0.1
)
