import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import tacit
from tacit.errors import InputError


def losses(model, batch):
    return cross_entropy(model(batch[0]), batch[1], reduction="none")


def build(rate=0.5):
    return nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Dropout(rate), nn.Linear(16, 3))


def plan(path, steps=5):
    return tacit.TrainingPlan(
        tacit.PoissonSampling(probability=0.5, expected_size=20), tacit.ClipRecords(1.0),
        tacit.GaussianNoise(multiplier=1.0), steps, path,
    )  # fmt: skip


@pytest.fixture
def run(tmp_path, data):
    method = tacit.MCDropout(build().eval(), losses)
    return method, tacit.train(method, data, plan(tmp_path / "l"), randomness=tacit.Randomness.seeded(1))


def test_units_are_dropped_while_training_though_the_model_evaluates(run, data):
    method, _ = run
    params = method.params(method.init())
    assert not torch.equal(method.losses(params, data), method.losses(params, data))
    assert not any(module.training for module in method.model.modules())


def test_training_and_predicting_leave_the_global_random_state_alone(tmp_path, data):
    method = tacit.MCDropout(build(), losses)
    before = torch.get_rng_state()
    run = tacit.train(method, data, plan(tmp_path / "l"))
    tacit.predict(method.model, run.posterior, data[0])
    assert (torch.get_rng_state() == before).all()


def test_masks_cannot_be_foreseen_from_the_global_seed(tmp_path, data):
    """The same global seed twice; masks come from the run's secure source, so the clipped sums differ."""
    sums = []
    for number in range(2):
        torch.manual_seed(0)
        method = tacit.MCDropout(build(), losses)
        noiseless = tacit.TrainingPlan(
            tacit.PoissonSampling(probability=1.0, expected_size=40), tacit.ClipRecords(1.0),
            tacit.GaussianNoise(multiplier=1e-9), 1, tmp_path / str(number),
        )  # fmt: skip
        sums.append(tacit.train(method, data, noiseless).state.params["0.weight"])
    assert (sums[0] - sums[1]).abs().max() > 1e-4


def test_a_seeded_run_repeats_its_masks(tmp_path, data):
    states = []
    for number in range(2):
        torch.manual_seed(3)
        method = tacit.MCDropout(build(), losses)
        torch.manual_seed(number)
        seeded = tacit.Randomness.seeded(7)
        states.append(tacit.train(method, data, plan(tmp_path / str(number)), randomness=seeded).state.params)
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_predictions_average_over_masks_and_can_be_repeated(run, data):
    method, trained = run
    posterior = trained.posterior
    assert isinstance(posterior, tacit.posteriors.DropoutPosterior)
    one, other = (tacit.predict(method.model, posterior, data[0]) for _ in range(2))
    assert torch.equal(one.mean, other.mean)
    assert (one.mutual_information > 0).all()
    alone = tacit.posteriors.DropoutPosterior(posterior.vectors, draws=1)
    assert not torch.equal(tacit.predict(method.model, alone, data[0]).mean, one.mean)
    assert not any(module.training for module in method.model.modules())


def test_more_masks_approach_the_expectation(data):
    """With one unit dropped at rate 1/2 there are two networks: their average is the truth."""
    model = nn.Sequential(nn.Linear(5, 1), nn.Dropout(0.5), nn.Linear(1, 3))
    params = {name: p.detach() for name, p in model.named_parameters()}
    hidden = model[0](data[0])
    wanted = (model[2](2 * hidden).softmax(1) + model[2](0 * hidden).softmax(1)) / 2
    found = tacit.predict(model, tacit.posteriors.DropoutPosterior(params, draws=4000), data[0])
    torch.testing.assert_close(found.mean, wanted.detach(), rtol=0, atol=0.03)


def test_it_survives_a_file(tmp_path, run):
    posterior = run[1].posterior
    posterior.save(tmp_path / "p.safetensors")
    loaded = tacit.load_posterior(tmp_path / "p.safetensors")
    assert isinstance(loaded, tacit.posteriors.DropoutPosterior)
    assert (loaded.draws, loaded.seed) == (posterior.draws, posterior.seed)
    assert all(torch.equal(value, posterior.vectors[name]) for name, value in loaded.vectors.items())


def test_a_model_without_dropout_is_refused(data):
    with pytest.raises(InputError, match="found none"):
        tacit.MCDropout(nn.Linear(5, 3), losses)
    with pytest.raises(InputError, match="found none"):
        tacit.predict(nn.Linear(5, 3), tacit.posteriors.DropoutPosterior({"weight": torch.zeros(3, 5)}), data[0])


def test_a_prior_needs_the_size_of_the_data():
    with pytest.raises(InputError, match="dataset_size"):
        tacit.MCDropout(build(), losses, prior=tacit.GaussianPrior(1.0))
