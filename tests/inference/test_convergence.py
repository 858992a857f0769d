"""Every sampler against posteriors that are known: linear regression in closed form, logistic regression by quadrature.

A model with one column of weights per chain is many independent chains in one run: the loss is their sum.
"""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import tacit

N, D = 60, 3
PRIOR = tacit.GaussianPrior(1.0)


def linear_data():
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(N, D, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 0.6, 0.3])
    return x, x @ torch.tensor([1.0, -0.5, 0.8]).double() + torch.randn(N, generator=generator, dtype=torch.float64)


def logistic_data():
    generator = torch.Generator().manual_seed(6)
    x = torch.randn(N, D, generator=generator, dtype=torch.float64)
    return x, (torch.rand(N, generator=generator) < torch.sigmoid(x @ torch.tensor([1.5, -1.0, 0.5]).double())).double()


def squares(model, batch):
    return 0.5 * (model(batch[0]) - batch[1][:, None]).square().sum(1)


def log_losses(model, batch):
    logits = model(batch[0])
    return (nn.functional.softplus(logits) - batch[1][:, None] * logits).sum(1)


def linear_posterior():
    x, y = linear_data()
    precision = x.T @ x + torch.eye(D)
    return torch.linalg.solve(precision, x.T @ y), torch.linalg.inv(precision)


def logistic_posterior(points=61, reach=5.5):
    """Mean and covariance by quadrature on a grid of +-5.5 Laplace deviations around the mode."""
    x, y = logistic_data()
    w = torch.zeros(D, dtype=torch.float64)
    for _ in range(30):
        p = torch.sigmoid(x @ w)
        hessian = (x * (p * (1 - p))[:, None]).T @ x + torch.eye(D)
        w = w - torch.linalg.solve(hessian, x.T @ (p - y) + w)
    axis = torch.linspace(-reach, reach, points, dtype=torch.float64)
    grid = torch.cartesian_prod(*[axis] * D) @ torch.linalg.cholesky(torch.linalg.inv(hessian)).T + w
    density = -0.5 * grid.square().sum(1)
    for record, label in zip(x, y, strict=True):
        logit = grid @ record
        density -= nn.functional.softplus(logit) - label * logit
    weight = density.softmax(0)
    mean = weight @ grid
    return mean, ((grid - mean) * weight[:, None]).T @ (grid - mean)


POSTERIORS = {
    "linear": (squares, linear_data, linear_posterior),
    "logistic": (log_losses, logistic_data, logistic_posterior),
}
CYCLE = tacit.CyclicalStep(0.012, 50, exploration=0.5)
SAMPLERS = {
    "sgld": lambda model, losses: tacit.SGLD(model, losses, PRIOR, 0.001, N),
    "sghmc": lambda model, losses: tacit.SGHMC(model, losses, PRIOR, 0.001, N, friction=0.15),
    "sgnht": lambda model, losses: tacit.SGNHT(model, losses, PRIOR, 0.001, N, diffusion=0.15),
    "psgld": lambda model, losses: tacit.PSGLD(model, losses, PRIOR, 0.0005, N, damping=0.25, adapt_steps=200),
    "cyclical": lambda model, losses: tacit.SGLD(model, losses, PRIOR, CYCLE, N),
}
