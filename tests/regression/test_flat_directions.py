"""Columns whose sum hardly varies: their coefficients are not identified, though no two of them go together."""

import numpy as np
import pytest

from tacit.regression import RegressionProblem, regress_in_memory
from tacit.regression.newton.flat import flat_in
from tacit.regression.newton.sums import NoisyMatrix, Rows
from tacit.tables import Flag, Number, Schema

COLUMNS, ROWS = 40, 10_000


def covariates(varies, seed=0):
    """Even over half the box; ``varies`` is what is left of the sum with signs, 1 for independent columns."""
    chance = np.random.default_rng(seed)
    x, signs = chance.uniform(-0.5, 0.5, (ROWS, COLUMNS)), chance.choice([-1.0, 1.0], COLUMNS) / COLUMNS**0.5
    return np.concatenate([np.ones((ROWS, 1)), x - (1 - varies) * np.outer(x @ signs, signs)], axis=1), signs


def noisy(x, stddev, seed=1):
    chance = np.random.default_rng(seed)
    noise = stddev * np.triu(chance.standard_normal((x.shape[1],) * 2), 1)
    return NoisyMatrix(x.T @ x + noise + noise.T, stddev, 0.0)


@pytest.mark.parametrize("varies", [0.0, 0.1])
def test_a_hidden_sum_is_found_where_all_matrices_together_show_it(varies):
    x, signs = covariates(varies)
    assert abs(np.corrcoef(x[:, 1:].T) - np.eye(COLUMNS)).max() < 0.07
    found = flat_in([noisy(x, 40.0, seed) for seed in range(3)])
    assert len(found) == 1
    direction = found[0].direction[1:] / np.linalg.norm(found[0].direction[1:])
    assert abs(direction @ signs) > 0.95


def test_independent_columns_have_none_until_noise_would_hide_it():
    x, _ = covariates(1.0)
    assert not flat_in([noisy(x, 40.0, seed) for seed in range(3)])
    assert flat_in([noisy(x, 400.0, seed) for seed in range(3)])


@pytest.mark.parametrize(("varies", "stated"), [(0.0, (0.0, 0.1)), (1.0, (0.9, 1.0))])
def test_coefficients_of_a_hidden_sum_get_no_interval(varies, stated):
    """34 % of them had one before, and of the 95 % intervals 35 % held."""
    x, signs = covariates(varies)
    chance = np.random.default_rng(2)
    columns = (*(Number(f"v{i}", -0.6, 0.6) for i in range(COLUMNS)), Flag("y"))
    problem = RegressionProblem(Schema(columns, records=ROWS), "y", 1.0, 1e-5)
    x[:, 1:] = np.clip(x[:, 1:] / 0.6, -1, 1)
    y = (chance.random(ROWS) < 1 / (1 + np.exp(-x[:, 1:] @ signs))).astype(float)
    rows = regress_in_memory(problem, Rows(x, y, np.ones(ROWS)), chance.standard_normal).coefficients()
    share = np.mean([row.is_identified for row in rows[1:]])
    assert stated[0] <= share <= stated[1]
