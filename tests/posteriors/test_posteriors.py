import math

import pytest
import torch
from torch import nn

from tacit.errors import InputError
from tacit.posteriors import Draws, Point, load_posterior, predict


def logits(*values):
    """A model that ignores its input and a posterior over its bias."""
    model = nn.Linear(1, len(values[0]))
    zero = torch.zeros(len(values[0]), 1)
    return model, Draws.of([{"weight": zero, "bias": torch.tensor(value)} for value in values])


def test_disagreeing_draws_are_uncertain_about_the_weights():
    model, posterior = logits([100.0, 0.0], [0.0, 100.0])
    prediction = predict(model, posterior, torch.zeros(3, 1))
    torch.testing.assert_close(prediction.mean, torch.full((3, 2), 0.5))
    torch.testing.assert_close(prediction.mutual_information, torch.full((3,), math.log(2)))


def test_agreeing_draws_are_uncertain_about_the_data_only():
    model, posterior = logits([1.0, 1.0], [2.0, 2.0])
    prediction = predict(model, posterior, torch.zeros(3, 1))
    torch.testing.assert_close(prediction.entropy, torch.full((3,), math.log(2)))
    torch.testing.assert_close(prediction.mutual_information, torch.zeros(3), atol=1e-6, rtol=0)


def test_a_point_claims_no_uncertainty_about_weights(model, data):
    point = Point({name: p.detach() for name, p in model.named_parameters()})
    prediction = predict(model, point, data[0], batch_size=7)
    torch.testing.assert_close(prediction.mean, model(data[0]).softmax(1).detach())
    assert prediction.mutual_information.max() < 1e-6


def test_one_logit_by_the_sigmoid():
    model, posterior = logits([0.7])
    prediction = predict(model, posterior, torch.zeros(1, 1), link="sigmoid")
    torch.testing.assert_close(prediction.mean[0, 1], torch.tensor(0.7).sigmoid())


def test_predicting_leaves_the_model_alone():
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(1, 2))
    model[0].eval()
    point = Point({name: torch.ones_like(p) for name, p in model.named_parameters()})
    predict(model, point, torch.zeros(2, 1))
    assert model.training
    assert not model[0].training
    assert not torch.equal(model[1].weight, torch.ones(2, 1))


@pytest.mark.parametrize("kind", [Draws, Point])
def test_a_posterior_survives_a_file(tmp_path, kind):
    posterior = kind({"w": torch.randn(3, 2)})
    posterior.save(tmp_path / "posterior.safetensors")
    loaded = load_posterior(tmp_path / "posterior.safetensors")
    assert type(loaded) is kind
    assert torch.equal(loaded.vectors["w"], posterior.vectors["w"])


def test_a_file_that_is_no_posterior_is_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    for content in (b"", b"\x80\x04cos\nsystem\n", b"\xff" * 100):
        path.write_bytes(content)
        with pytest.raises(InputError, match="not a readable posterior"):
            load_posterior(path)


@pytest.mark.parametrize(("outputs", "link", "message"), [(1, "softmax", "softmax needs"), (2, "sigmoid", "one logit")])
def test_outputs_that_do_not_fit_the_link_are_refused(outputs, link, message):
    model, posterior = logits([0.0] * outputs)
    with pytest.raises(InputError, match=message):
        predict(model, posterior, torch.zeros(1, 1), link=link)


@pytest.mark.parametrize("weight", [torch.zeros(3, 2), torch.zeros(2, 3, 1), torch.zeros(2, 3, dtype=torch.int64)])
def test_the_posterior_of_another_model_is_refused(weight):
    with pytest.raises(InputError, match="of another model: its weight has shape"):
        predict(nn.Linear(3, 2), Point({"weight": weight, "bias": torch.zeros(2)}), torch.ones(4, 3))
