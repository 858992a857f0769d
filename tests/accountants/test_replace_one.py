"""PLD of fixed-size samples: against every tiny data set, against draws of its own pair, and beside RDP."""

import itertools
import math

import numpy as np
import pytest

from tacit.accountants import PLDAccountant, RDPAccountant
from tacit.accountants.pld import PoissonGaussian, epsilon_bracket
from tacit.accountants.pld.accountant import ledger_bracket
from tacit.accountants.pld.closed_form import one_step_remove
from tacit.accountants.pld.lattice.replace_one import law
from tacit.ledger import Charge, FixedSizeSample, GaussianSumQuery, Ledger

GRIDS = {1: np.linspace(-14, 14, 28_001), 2: np.linspace(-14, 14, 1401)}  # for one and for two releases


def ledger(size, population, z, steps):
    return Ledger.planned([Charge(FixedSizeSample(size, population, (GaussianSumQuery(1.0, z),)), steps)])


def density(data, size, z, grid):
    """Of one release, on a grid: the mean over all samples of that size."""
    sums = [sum(sample) for sample in itertools.combinations(data, size)]
    each = [np.exp(-((grid - total) ** 2) / (2 * z * z)) for total in sums]
    return np.mean(each, axis=0) / (z * math.sqrt(2 * math.pi)) * (grid[1] - grid[0])


def neighbours(population):
    for data in itertools.product((-1.0, 0.0, 1.0), repeat=population):
        for other in (-1.0, 0.0, 1.0):
            yield data, (other, *data[1:])


@pytest.mark.parametrize(("size", "population"), [(1, 2), (1, 3), (2, 3), (2, 4)])
@pytest.mark.parametrize(("z", "steps", "delta"), [(1.5, 1, 0.01), (2.0, 2, 1e-3), (4.0, 2, 0.02)])
def test_no_tiny_data_set_exceeds_it(size, population, z, steps, delta):
    """Every data set of -1, 0 and 1, every replacement, one or two releases: the exact delta at our epsilon."""
    epsilon = ledger_bracket(ledger(size, population, z, steps), delta).upper
    worst = 0.0
    for data, other in neighbours(population):
        one, two = density(data, size, z, GRIDS[steps]), density(other, size, z, GRIDS[steps])
        if steps == 2:
            one, two = np.multiply.outer(one, one), np.multiply.outer(two, two)
        worst = max(worst, float(np.maximum(one - math.exp(epsilon) * two, 0).sum()))
    assert worst <= delta * (1 + 1e-6 if steps == 1 else 1 + 1e-3)  # what the sum over the grid is good for
    if steps == 1:  # one unit turned from +1 to -1 where all others are -1 attains it
        assert worst >= delta * (1 - 1e-4)


def losses_of_the_pair(g, m, number, seed):
    """Draws of the loss under P, by its definition."""
    rng = np.random.default_rng(seed)
    high = rng.random(number) < g
    x = m * rng.standard_normal(number) + high
    loss = np.log1p(g * np.expm1((2 * x - 1) / (2 * m * m)))
    gains = np.where(x > 0.5, loss, 0.0)  # mass (1-g) N(0) + g N(1) beyond 1/2
    # the rest of the mass: N(0) beyond 1/2 is turned round, what is left over stays at 0
    falls, rest = 0.5 * math.erfc(1 / (math.sqrt(8) * m)), float(1 - (x > 0.5).mean())
    below = rng.random(number) < falls / rest
    tail = np.abs(m * rng.standard_normal(20 * number))
    tail = tail[tail > 0.5][:number]
    turned = -np.log1p(g * np.expm1((2 * np.resize(tail, number) - 1) / (2 * m * m)))
    return np.where(x > 0.5, gains, np.where(below, turned, 0.0))


@pytest.mark.parametrize(("size", "population", "z", "steps"), [(10, 100, 4.0, 40), (60, 100, 20.0, 60)])
def test_draws_of_the_pair_agree(size, population, z, steps):
    """delta(epsilon) = E[(1 - e^(epsilon - L))_+] from two hundred thousand sums of losses."""
    delta, number = 1e-2, 200_000
    epsilon = ledger_bracket(ledger(size, population, z, steps), delta).upper
    total = sum(losses_of_the_pair(size / population, z / 2, number, seed) for seed in range(steps))
    terms = np.maximum(-np.expm1(epsilon - total), 0.0)
    assert terms.mean() == pytest.approx(delta, abs=5 * terms.std() / math.sqrt(number))


@pytest.mark.parametrize("g", [1e-4, 0.1, 0.9])
def test_a_law_has_mass_one_under_both_and_is_one_steps_profile(g):
    m, width, below, above = 1.3, 0.005, 2000, 2000
    found = law(g, m, width, below, above)
    loss = width * (np.arange(len(found.masses)) - below)
    assert found.masses.sum() + found.tail_p == pytest.approx(1, abs=1e-10)
    assert found.masses @ np.exp(-loss) <= 1 + 1e-10
    for epsilon in (0.05, 0.5, 1.0):
        delta = found.masses @ np.maximum(-np.expm1(epsilon - loss), 0) + found.tail_p
        exact = one_step_remove(np.array([epsilon]), g, m)[0][0]
        assert exact <= delta <= exact * (1 + 1e-3) + 1e-12


@pytest.mark.parametrize(
    ("size", "population", "z", "steps", "delta"),
    [
        (100, 10_000, 4.0, 500, 1e-5),
        (600, 60_000, 2.2, 10_000, 1e-5),
        (50, 100, 20.0, 50, 1e-6),
        (1, 10, 40.0, 3, 1e-9),
    ],
)
def test_it_lies_below_rdp_and_above_the_poisson_sample(size, population, z, steps, delta):
    book = ledger(size, population, z, steps)
    found, renyi = (accountant.guarantee(book, delta=delta) for accountant in (PLDAccountant(), RDPAccountant()))
    poisson = epsilon_bracket([PoissonGaussian(size / population, z / 2, steps)], delta)
    assert poisson.lower <= found.epsilon <= renyi.epsilon
    assert found.epsilon < 0.97 * renyi.epsilon
    assert (found.neighbours, found.is_bound) == ("replace_one", True)


def test_several_kinds_of_samples_compose():
    parts = [Charge(FixedSizeSample(100, 10_000, (GaussianSumQuery(1.0, z),)), 200) for z in (4.0, 5.0)]
    both, less, more = (
        ledger_bracket(Ledger.planned(some), 1e-5).upper
        for some in (parts, [Charge(parts[1].event, 400)], [Charge(parts[0].event, 400)])
    )
    assert less < both < more
