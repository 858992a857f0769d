import numpy as np
import pytest
import torch
from conftest import classify

from tacit.errors import InputError
from tacit.evaluation import draw_leakage, leakage_check
from tacit.gradients import gradient_distances
from tacit.losses import ModelLosses


def test_equal_distributions_are_rarely_told_apart():
    rng = np.random.default_rng(0)
    found = [leakage_check(rng.gamma(2, 1, 300), rng.gamma(2, 1, 300)).differs(0.05) for _ in range(200)]
    assert np.mean(found) < 0.1


@pytest.mark.parametrize(("shift", "stretch"), [(0.5, 1.0), (0.0, 2.0)])
def test_a_shift_or_another_spread_is_found(shift, stretch):
    rng = np.random.default_rng(1)
    check = leakage_check(rng.normal(0, 1, 800), rng.normal(shift, stretch, 800))
    assert check.differs()
    assert "different" in check.sentence()


def test_finding_nothing_is_not_called_a_proof():
    values = np.random.default_rng(2).normal(size=100)
    assert "no bound" in leakage_check(values, values).sentence()


def test_distances_are_those_of_the_gradients(model, data):
    losses = ModelLosses(model, classify)
    found = gradient_distances(losses, losses.params, data, pairs=5, seed=1)
    order = torch.randperm(len(data[0]), generator=torch.Generator().manual_seed(1))
    gradients = []
    for index in (int(order[0]), int(order[5])):
        model.zero_grad()
        classify(model, tuple(part[index : index + 1] for part in data)).sum().backward()
        gradients.append(torch.cat([p.grad.flatten().double() for p in model.parameters()]))
    torch.testing.assert_close(found[0], (gradients[0] - gradients[1]).norm(), rtol=1e-5, atol=1e-7)


def test_too_little_is_refused():
    with pytest.raises(InputError, match="at least 10"):
        leakage_check([1.0, 2.0], np.ones(50))


def test_the_histograms_are_drawn(tmp_path):
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    draw_leakage(axes, leakage_check(np.arange(20.0), np.arange(20.0) + 1))
    assert axes.get_title()
