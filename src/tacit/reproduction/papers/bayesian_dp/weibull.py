"""Gradient norms of paper B's synthetic studies: heavy-tailed, Weibull with shape below 1. For figures 1, 3 and 4.

The paper prints neither its shape nor its number of records; 0.5 and 1,000 here. A record keeps its norm throughout.
"""

import math

import numpy as np

from tacit.accountants.bayesian import MOMENTS, privacy_costs, student_t

SHAPE, RECORDS, GAMMA = 0.5, 1_000, 1e-15


def quantile(level: float) -> float:
    return float((-math.log1p(-level)) ** (1 / SHAPE))


def draw_norms(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).weibull(SHAPE, RECORDS)


def dp_epsilon(z: float, q: float, steps: int, delta: float, moments: tuple[int, ...] = MOMENTS) -> float:
    """The moments accountant over the orders asked for, with the paper's conversion."""
    [costs] = privacy_costs(q, [1 / z], moments)
    return float(((steps * costs - math.log(delta)) / np.array(moments)).min())


def paper_epsilon(
    distances: np.ndarray, q: float, steps: int, delta: float, moments: tuple[int, ...] = MOMENTS
) -> float:
    """The paper's Bayesian number: Student's t on E[exp(T A)] (its section 4.3, with the T that eq. 14 lost)."""
    costs = steps * privacy_costs(q, distances, moments)
    logs = np.array([student_t(column, math.inf, GAMMA) for column in costs.T])
    return float(((logs - math.log(delta - GAMMA)) / np.array(moments)).min())
