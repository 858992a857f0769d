import pytest
import torch

import tacit
from tacit.errors import InputError
from tacit.inference.descent import averaged


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (tacit.inference.AdamDescent(0.01), lambda p: torch.optim.Adam(p, lr=0.01)),
        (tacit.inference.PlainDescent(0.1, momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
        (tacit.inference.PlainDescent(0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
    ],
)
def test_it_moves_like_torch(ours, theirs):
    weight = torch.nn.Parameter(torch.randn(4))
    params = {"w": weight.detach().clone()}
    moments, optimizer = ours.init(params), theirs([weight])
    for step in range(5):
        gradient = torch.randn(4)
        weight.grad = gradient.clone()
        optimizer.step()
        params, moments = ours.move(params, {"w": gradient}, moments, step)
    torch.testing.assert_close(params["w"], weight.detach())


def test_a_running_average_forgets_its_start():
    average = {"w": torch.tensor([1000.0])}
    for step in range(2000):
        average = averaged(average, {"w": torch.ones(1)}, 0.99, step)
    torch.testing.assert_close(average["w"], torch.ones(1), rtol=1e-4, atol=0)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: tacit.inference.PlainDescent(0.1, 1.0),
        lambda: tacit.inference.AdamDescent(0.0),
        lambda: tacit.inference.AdamDescent(0.1, 1.0),
    ],
)
def test_bad_numbers_are_refused(bad):
    with pytest.raises(InputError):
        bad()
