"""What a model that was learned by clipped gradients says, and what it would say without knowing of the clip."""

import numpy as np
import pytest
import torch

from tacit.likelihoods import Bernoulli
from tacit.posteriors import predict
from tacit.randomness import Randomness
from tacit.runs import Problem, RunFacts, RunFolder, train_table
from tacit.runs.models import build_model, reading_model
from tacit.tables import Flag, Number, Schema, Table, encode

SCHEMA = Schema((Number("x", -1, 1), Flag("y")), records=3_000, target="y")


def problem(schema=SCHEMA, **other):
    return Problem(schema, "y", 0.3, 1e-5, **other)


def test_at_rest_the_odds_are_those_of_the_records():
    """Gradients of both classes, clipped and weighed by their shares, cancel at the p that such a model has."""
    found = problem()
    model, C = reading_model(found), found.recipe.clip_norm
    torch.nn.init.constant_(model.weight, 1.5)
    x = torch.tensor([[0.1, 0.1], [0.5, 0.4], [0.8, 0.6], [-0.9, -0.5], [1.5, 0.2]])
    p, t, reach = torch.sigmoid(x @ model.weight.T)[:, 0], torch.sigmoid(model(x))[:, 0], x.norm(dim=1).clamp(max=1)
    yes, no = ((1 - p) * reach).clamp(max=C), (p * reach).clamp(max=C)
    assert torch.allclose(t * yes, (1 - t) * no, atol=1e-6)
    assert (p - t).abs().max() > 0.02


@pytest.mark.parametrize(
    "other",
    [
        problem(model="mlp"),
        problem(method="bbp"),
        problem(Schema((Number("x", -1, 1), Flag("y")), records=3_000, target="y", class_weight={"true": 2.0})),
    ],
    ids=["network", "variational", "weights"],
)
def test_where_the_size_of_a_gradient_is_not_known_logits_stay(other):
    assert type(reading_model(other)) is type(build_model(other))


def test_a_model_is_as_sure_as_it_is_right(tmp_path):
    """Four of five records go with the sign of x: clipped gradients make a p of more than .83 of that."""
    chance = np.random.default_rng(0)
    x = chance.choice([-0.9, 0.9], 3_000)
    y = np.where(chance.random(3_000) < np.where(x > 0, 0.8, 0.2), "yes", "no").astype(object)
    data = encode(Table({"x": x, "y": y}), SCHEMA, "y")
    trained = train_table(
        RunFacts(problem()), data, RunFolder(tmp_path / "run"), checkpoints=False, randomness=Randomness.seeded(0)
    )
    said = trained.predictor.classes(data.inputs[:1000])
    raw = predict(
        build_model(problem()),
        trained.predictor.posterior,
        torch.from_numpy(data.inputs[:1000]),
        likelihood=Bernoulli(),
    )
    assert said.confidence.mean() == pytest.approx(0.8, abs=0.025)
    assert raw.confidence.mean() > 0.83
