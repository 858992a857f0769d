import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss, roc_auc_score

from tacit.errors import InputError
from tacit.evaluation import (
    adaptive_calibration_error,
    coverage,
    detection,
    gaussian_nll,
    majority_share,
    reliability,
    scores,
    separation,
)


def draw(seed, records=400, classes=4):
    generator = torch.Generator().manual_seed(seed)
    probabilities = torch.randn(records, classes, generator=generator).softmax(1)
    return probabilities, torch.multinomial(probabilities, 1, generator=generator)[:, 0]


@given(seed=st.integers(0, 1000))
@settings(max_examples=20)
def test_scores_agree_with_those_of_others(seed):
    torchmetrics = pytest.importorskip("torchmetrics.functional.classification")
    probabilities, labels = draw(seed)
    found = scores(probabilities, labels)
    assert found.accuracy == pytest.approx(float((probabilities.argmax(1) == labels).float().mean()))
    assert found.nll == pytest.approx(log_loss(labels, probabilities.numpy(), labels=range(4)), rel=1e-5)
    theirs = torchmetrics.multiclass_calibration_error(probabilities, labels, 4, n_bins=15, norm="l1")
    assert found.ece == pytest.approx(float(theirs), abs=1e-5)
    most = torchmetrics.multiclass_calibration_error(probabilities, labels, 4, n_bins=15, norm="max")
    assert reliability(probabilities, labels).mce == pytest.approx(float(most), abs=1e-5)


def test_probabilities_that_are_true_are_calibrated_and_sharper_ones_are_not():
    probabilities, labels = draw(0, records=40_000)
    sharper = probabilities.pow(3) / probabilities.pow(3).sum(1, keepdim=True)
    assert scores(probabilities, labels).ece < 0.01
    assert scores(probabilities, labels).adaptive_ece < 0.01
    assert adaptive_calibration_error(sharper, labels) > 0.1
    assert scores(sharper, labels).nll > scores(probabilities, labels).nll
    assert scores(sharper, labels).brier > scores(probabilities, labels).brier


def test_certainty_of_something_wrong_costs_much_but_not_everything():
    found = scores(torch.tensor([[1.0, 0.0]]), torch.tensor([1]))
    assert found.accuracy == 0
    assert math.isfinite(found.nll)
    assert found.brier == 2


@given(seed=st.integers(0, 1000), shift=st.floats(-1, 2))
@settings(max_examples=20)
def test_separation_is_the_area_under_the_curve(seed, shift):
    generator = torch.Generator().manual_seed(seed)
    known, unknown = (
        torch.randn(60, generator=generator).round(decimals=1),
        torch.randn(40, generator=generator) + shift,
    )
    unknown = unknown.round(decimals=1)
    theirs = roc_auc_score([0] * 60 + [1] * 40, torch.cat([known, unknown]).numpy())
    assert separation(known, unknown) == pytest.approx(theirs)


def test_coverage_of_a_true_distribution_is_nominal():
    generator = torch.Generator().manual_seed(0)
    found = coverage(torch.rand(20_000, generator=generator))
    assert found.error < 0.01
    assert coverage(0.5 + 0.2 * (torch.rand(1000, generator=generator) - 0.5)).error > 0.1


def test_gaussian_nll_is_the_density():
    law = torch.distributions.Normal(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 2.0]))
    targets = torch.tensor([0.3, 4.0])
    assert gaussian_nll(law.mean, law.variance, targets) == pytest.approx(
        float(-law.log_prob(targets).mean()), rel=1e-6
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda: scores(torch.ones(2, 3) / 3, torch.tensor([0])),
        lambda: scores(torch.ones(1, 3) / 3, torch.tensor([3])),
        lambda: scores(torch.ones(1, 3) / 3, torch.tensor([-1])),
        lambda: separation(torch.tensor([]), torch.tensor([1.0])),
        lambda: separation(torch.tensor([math.nan]), torch.tensor([1.0])),
        lambda: coverage(torch.tensor([1.5])),
        lambda: gaussian_nll(torch.zeros(1), torch.zeros(1), torch.zeros(1)),
    ],
)
def test_what_has_no_score_is_refused(call):
    with pytest.raises(InputError):
        call()


def test_a_rare_class_is_told_apart_from_always_saying_the_other():
    """98.74 % right where always-no gives 98.72 %: accuracy alone hides that almost nothing is found."""
    labels = torch.zeros(10_000, dtype=torch.long)
    labels[:128] = 1
    probabilities = torch.tensor([0.9, 0.1]).repeat(10_000, 1)
    probabilities[:2] = torch.tensor([0.4, 0.6])
    found = detection(probabilities, labels)
    assert (round(scores(probabilities, labels).accuracy, 4), majority_share(labels)) == (0.9874, 0.9872)
    assert (found.rare, found.sensitivity, found.specificity) == (1, 2 / 128, 1.0)
    assert found.auc == pytest.approx(0.5 + 1 / 128)
    assert detection(torch.full((2, 3), 1 / 3), torch.tensor([0, 1])) is None
    assert detection(probabilities[128:], labels[128:]) is None


def test_a_largest_gap_that_no_bin_measures_is_not_zero():
    few = scores(torch.tensor([[0.9, 0.1]] * 24), torch.zeros(24, dtype=torch.long))
    enough = scores(torch.tensor([[0.9, 0.1]] * 25), torch.zeros(25, dtype=torch.long))
    assert few.mce is None
    assert enough.mce == pytest.approx(0.1, abs=1e-6)
