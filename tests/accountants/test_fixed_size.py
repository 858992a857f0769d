import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import norm

from tacit.accountants import RDPAccountant, guarantees
from tacit.accountants.fixed_size import fixed_size_log_moments
from tacit.accountants.moments import log_moments
from tacit.errors import RefusedError
from tacit.ledger import Charge, FixedSizeSample, GaussianSumQuery, Ledger, LedgerHeader

shares = st.floats(1e-4, 0.999)
noises = st.floats(0.8, 40)


def attainable(g, z, a):
    """A pair that replace-one neighbours attain: one unit turned from +C to -C, all the others silent."""

    def density(x, sign):
        return logsumexp([np.log1p(-g) + norm.logpdf(x, 0, z), np.log(g) + norm.logpdf(x, sign, z)])

    def integrand(x):
        return np.exp(a * density(x, 1) + (1 - a) * density(x, -1))

    return np.log(quad(integrand, -9 * z - a, 9 * z + 2 * a, limit=400, epsabs=1e-13)[0])


@pytest.mark.parametrize(("g", "z", "a"), [(0.3, 4.0, 2.0), (0.05, 2.0, 3.0), (0.5, 3.0, 1.5), (0.9, 5.0, 6.0)])
def test_never_below_what_neighbours_attain(g, z, a):
    assert fixed_size_log_moments(g, z, np.array([a]))[0] >= attainable(g, z, a) - 1e-10


@given(shares, noises, st.floats(1.1, 60))
def test_between_the_sampled_and_the_unsampled_gaussian(g, z, a):
    [bound] = fixed_size_log_moments(g, z, np.array([a]))
    assert bound >= log_moments(g, z / 2, a)[0, 0] * (1 - 1e-9)
    assert bound <= 2 * a * (a - 1) / z**2 * (1 + 1e-9)


def test_the_whole_population_is_a_plain_gaussian():
    near, exact = (fixed_size_log_moments(g, 3.0, np.array([1.5, 4.0, 20.0])) for g in (1 - 1e-12, 1.0))
    assert near == pytest.approx(exact, rel=1e-9)


def test_the_statement_speaks_of_replacing():
    event = FixedSizeSample(100, 10_000, (GaussianSumQuery(1.0, 2.0),))
    guarantee = RDPAccountant().guarantee(Ledger.planned([Charge(event, 100)]), delta=1e-5)
    assert guarantee.neighbours == "replace_one"
    with pytest.raises(RefusedError, match="fixed_size"):
        RDPAccountant().guarantee(Ledger.planned([Charge(event, 1)], LedgerHeader()), delta=1e-5)


def test_other_accountants_refuse_it_by_name_unless_nothing_is_sampled():
    query = (GaussianSumQuery(1.0, 20.0),)
    sampled = guarantees(Ledger.planned([Charge(FixedSizeSample(1, 10, query), 1)]), 1e-5)
    assert [answer.accountant for answer in sampled if "fixed_size" in getattr(answer, "reason", "")] == ["pld", "gdp"]
    pld, rdp, _ = guarantees(Ledger.planned([Charge(FixedSizeSample(10, 10, query), 3)]), 1e-5)
    assert pld.epsilon <= rdp.epsilon
