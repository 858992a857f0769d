"""Cross-check with prv-accountant, whose bracket is computed by another method (FFT of a discretised privacy loss)."""

import warnings

import pytest

from tacit.accountants.pld import PoissonGaussian, epsilon_bracket

SETTINGS = [(256 / 60_000, 1.3, 3516), (0.001, 1.0, 10_000), (0.05, 1.0, 200), (0.01, 4.0, 2000)]


@pytest.mark.slow
@pytest.mark.parametrize(("q", "z", "steps"), SETTINGS)
def test_the_two_brackets_overlap(q, z, steps):
    prv = pytest.importorskip("prv_accountant", reason="prv-accountant is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mechanism = prv.PoissonSubsampledGaussianMechanism(sampling_probability=q, noise_multiplier=z)
        theirs = prv.PRVAccountant(prvs=[mechanism], max_self_compositions=[steps], eps_error=0.01, delta_error=1e-9)
        low, _, high = theirs.compute_epsilon(delta=1e-5, num_self_compositions=[steps])
    ours = epsilon_bracket([PoissonGaussian(q, z, steps)], 1e-5)
    assert low <= ours.upper
    assert ours.lower <= high
