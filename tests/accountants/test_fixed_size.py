import itertools

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import norm

from tacit.accountants import RDPAccountant, guarantees
from tacit.accountants.pld import PoissonGaussian, epsilon_bracket
from tacit.accountants.renyi.fixed_size import fixed_size_log_moments
from tacit.accountants.renyi.moments import log_moments
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


def stated(g, z, a):
    """The integral of the docstring with many digits; panels start narrow, as F_(1-a) bends within 1/(g a)."""
    h, edges, width = z / 2, [0.5], min(z / 2, z * z / 4)
    least = max(width / 50, min(width, 4 * h * h / (g * a)))
    while edges[-1] < max(1, a) + 14 * h:
        edges.append(edges[-1] + least)
        least = min(width, 1.3 * least)
    with mpmath.workdps(40):
        g, h, a = mpmath.mpf(g), mpmath.mpf(h), mpmath.mpf(a)

        def integrand(x):
            u = g * mpmath.expm1((2 * x - 1) / (2 * h * h))
            both = (1 + u) ** a - 1 - a * u + (1 + u) ** (1 - a) - 1 - (1 - a) * u
            return mpmath.exp(-x * x / (2 * h * h)) * both

        nodes, weights = np.polynomial.legendre.leggauss(24)
        total = mpmath.fsum(
            (right - left) / 2 * weight * integrand((left + right) / 2 + (right - left) / 2 * node)
            for left, right in itertools.pairwise(mpmath.mpf(edge) for edge in edges)
            for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True)
        )
        return mpmath.log1p(total / (h * mpmath.sqrt(2 * mpmath.pi)))


@pytest.mark.parametrize(
    ("g", "z", "a"), [(1e-6, 200, 4096), (0.01, 200, 1000.5), (0.3, 200, 4096), (0.01, 10, 200.5), (0.9, 2.0, 1.05)]
)
def test_never_below_its_formula_to_order_4096(g, z, a):
    [bound] = fixed_size_log_moments(g, z, np.array([float(a)]))
    assert stated(g, z, a) <= bound <= stated(g, z, a) * (1 + mpmath.mpf(1e-10))


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


def test_pld_charges_twice_the_contribution_and_gdp_refuses_it_by_name():
    query = (GaussianSumQuery(1.0, 20.0),)
    sampled = guarantees(Ledger.planned([Charge(FixedSizeSample(1, 10, query), 1)]), 1e-5)
    assert [answer.accountant for answer in sampled if "fixed_size" in getattr(answer, "reason", "")] == ["gdp"]
    assert epsilon_bracket([PoissonGaussian(0.1, 10.0, 1)], 1e-5).lower <= sampled[0].epsilon <= sampled[1].epsilon
    pld, rdp, _ = guarantees(Ledger.planned([Charge(FixedSizeSample(10, 10, query), 3)]), 1e-5)
    assert pld.epsilon <= rdp.epsilon
