import pytest
import torch
from torch import nn

import tacit
from tacit.errors import InputError


def test_a_prior_needs_the_size_of_the_data():
    with pytest.raises(InputError, match="dataset_size"):
        tacit.SGD(nn.Linear(1, 1), lambda m, b: b, 0.1, prior=tacit.GaussianPrior(1.0))


@pytest.mark.parametrize("momentum", [1.0, -0.1])
def test_momentum_lies_in_its_range(momentum):
    with pytest.raises(InputError, match="momentum"):
        tacit.SGD(nn.Linear(1, 1), lambda m, b: b, 0.1, momentum=momentum)


def test_it_steps_like_torch(model):
    method = tacit.SGD(model, lambda m, b: b, 0.1, momentum=0.9)
    gradient = {name: torch.ones_like(p) for name, p in model.named_parameters()}
    state = method.init()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        state = method.step(state, gradient)
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(state.params[name], parameter.detach())
