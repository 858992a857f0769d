"""Noise that is none, as a ledger changed by hand may hold: answered or refused, never an error of the accountant."""

import warnings

import pytest

from tacit.accountants import Refusal, guarantees
from tacit.ledger import Charge, GaussianSumQuery, Ledger, PoissonSample


@pytest.mark.parametrize("noise", [1e-12, 1e-100, 1e-300])
@pytest.mark.parametrize("probability", [0.2, 1.0])
def test_noise_that_is_none_is_answered_or_refused(noise, probability):
    """A ledger may hold it, with a fitting hash; no accountant may end in an error of its own."""
    event = PoissonSample(probability, (GaussianSumQuery(1.0, noise),))
    with warnings.catch_warnings(action="ignore"):
        found = guarantees(Ledger.planned([Charge(event, 20)]), 1e-5)
    assert all(isinstance(one, Refusal) or one.epsilon > 100 for one in found)
