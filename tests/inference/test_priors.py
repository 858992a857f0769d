import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import InputError
from tacit.inference import FlatPrior, GaussianPrior, LaplacePrior

DENSITIES = {
    "gaussian": (GaussianPrior(0.3), torch.distributions.Normal(0.0, 0.3)),
    "laplace": (LaplacePrior(0.3), torch.distributions.Laplace(0.0, 0.3)),
}


@pytest.mark.parametrize("name", DENSITIES)
@given(value=st.floats(0.01, 5))
def test_the_gradient_is_that_of_minus_log_density(name, value):
    prior, density = DENSITIES[name]
    w = torch.tensor([value, -value], requires_grad=True)
    (wanted,) = torch.autograd.grad(-density.log_prob(w).sum(), w)
    torch.testing.assert_close(prior.gradient({"w": w.detach()})["w"], wanted)


def test_a_flat_prior_pulls_nowhere():
    assert FlatPrior().gradient({"w": torch.ones(2)})["w"].tolist() == [0, 0]


@pytest.mark.parametrize("kind", [GaussianPrior, LaplacePrior])
def test_a_width_is_positive(kind):
    with pytest.raises(InputError):
        kind(0.0)
