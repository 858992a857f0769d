"""Whitening and what may be done to one row: even directions, unit norms, nothing shared between records."""

import pytest
import torch

from tacit.errors import InputError
from tacit.features import Statistics, Whitening, normalise_groups, unit_rows


def uneven(n=4000):
    scales = torch.tensor([1.0, 0.1, 0.01])
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(0)) * scales + 0.5


def statistics(data):
    return Statistics(data.double().mean(0)[:, None], (data.double().T @ data.double()) / len(data))


def test_no_direction_stays_larger():
    data = uneven()
    made = Whitening.of(statistics(data), ridge=1e-9)
    white = (made.matrix @ (data.double().T - made.mean)).T
    torch.testing.assert_close(torch.cov(white.T), torch.eye(3, dtype=torch.float64), atol=1e-3, rtol=0)


def test_a_ridge_holds_small_directions_down():
    data = uneven()
    made = Whitening.of(statistics(data), ridge=0.3)
    white = (made.matrix @ (data.double().T - made.mean)).T
    variances = torch.cov(white.T).diagonal()
    assert float(variances[0]) > 0.8
    assert float(variances[2]) < 0.01


def test_rows_come_out_with_norm_1_each_on_its_own():
    data = uneven(50)
    made = Whitening.of(statistics(data))
    alone = made.apply_(data[7:8].clone())
    together = made.apply_(data.clone())
    torch.testing.assert_close(together[7:8], alone)
    torch.testing.assert_close(together.norm(dim=1), torch.ones(50))


def test_noise_that_made_it_indefinite_does_no_harm():
    made = Whitening.of(Statistics(torch.zeros(2, 1), torch.tensor([[1.0, 0.0], [0.0, -0.5]])))
    assert bool(torch.isfinite(made.matrix).all())
    with pytest.raises(InputError, match="no positive eigenvalue"):
        Whitening.of(Statistics(torch.zeros(1, 1), torch.tensor([[-1.0]])))


def test_shapes_must_fit():
    made = Whitening(torch.zeros(2, 1), torch.eye(2))
    with pytest.raises(InputError, match="do not fit"):
        made.apply_(torch.rand(4, 3))


def test_groups_are_normalised_within_a_record():
    features = torch.rand(3, 6, 2, 2)
    found = normalise_groups(features.clone(), 2).reshape(3, 2, -1)
    assert float(found.mean(2).abs().max()) < 1e-6
    torch.testing.assert_close(found.var(2, correction=0), torch.ones(3, 2), atol=1e-2, rtol=0)
    with pytest.raises(InputError, match="equal groups"):
        normalise_groups(features, 4)


def test_a_zero_row_stays_zero():
    assert float(unit_rows(torch.zeros(2, 5)).abs().max()) == 0.0
