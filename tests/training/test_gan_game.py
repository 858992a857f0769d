"""Paper M's GAN in a loop of one's own: what leaves in a step, and what it is charged for."""

import sys

import pytest
import torch

import tacit
from tacit.mechanisms import VectorGroup
from tacit.reproduction import find_papers

PAPERS = find_papers()


@pytest.fixture
def gan_game(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(PAPERS / "dp_sgmcmc"), *sys.path])
    import gan_game

    return gan_game


@pytest.fixture
def game(gan_game):
    torch.manual_seed(0)
    labels, no_labels = torch.arange(10), torch.full((300,), gan_game.UNKNOWN)
    pictures = gan_game.Pictures(
        torch.rand(300, 196), no_labels, torch.rand(10, 196), labels, torch.rand(20, 196), torch.zeros(20), labels
    )
    return gan_game.Game(pictures)


def test_the_gradient_of_the_probe_is_the_mean_of_the_features(gan_game, game):
    game.model.eval()
    rows = game.pictures.private[:7]
    gan_game.private_losses(game.model, (rows, game.pictures.private_labels[:7])).mean().backward()
    features = game.model.features(rows).mean(0)
    assert features.norm() > 0.1
    torch.testing.assert_close(game.model.probe.weight.grad[0], features)


@pytest.mark.parametrize("build", [tacit.SGD, tacit.inference.SGHMC])
def test_a_game_moves_both_players_and_charges_two_queries_a_step(gan_game, game, tmp_path, build):
    names = tuple(name for name, _ in game.model.named_parameters() if name != "probe.weight")
    private = tacit.PrivateGradient(
        game.model, gan_game.private_losses, tacit.PoissonSampling(0.1, 30),
        tacit.ClipGroups([VectorGroup(names, 0.5), VectorGroup(("probe.weight",), 5.0)]), tacit.GaussianNoise(2.0),
        ledger=tmp_path / "ledger.jsonl",
    )  # fmt: skip
    sizes = (
        {"learning_rate": 0.1} if build is tacit.SGD else {"step_size": 1e-4, "dataset_size": 300, "temperature": None}
    )
    step = gan_game.step_of(build(game.model, gan_game.private_losses, **sizes), game.model)
    players = (game.model.scores[1].weight, game.generator[0].weight)
    before = [weight.detach().clone() for weight in players]

    def released():
        for sample in private.samples((game.pictures.private, game.pictures.private_labels), 3):
            game.model.zero_grad()
            private.backward(sample)
            yield

    with private:
        game.play(released(), step, steps=3, keep=1)
        [charge] = private.ledger.charges
    assert charge.steps == 3
    assert len(charge.event.queries) == 2
    assert not any(torch.equal(*pair) for pair in zip(before, players, strict=True))
    assert not game.model.probe.weight.any()
