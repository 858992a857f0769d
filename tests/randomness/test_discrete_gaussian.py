"""The discrete Gaussian: its exact distribution at small sigma, its shape at large sigma, and its coins."""

import numpy as np
import pytest
from scipy.stats import chi2, kstest

from tacit.errors import InputError
from tacit.randomness import Randomness
from tacit.randomness.discrete_gaussian import _Coins, discrete_gaussians


def words(seed=1):
    source = Randomness.seeded(seed)
    return lambda count: source.words("noise", count)


def fits(counts, chances):
    """Chi-square at 1e-6, rare values together."""
    expected = chances * counts.sum()
    common = expected > 20
    found = np.append(counts[common], counts[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    found, wanted = found[wanted > 0], wanted[wanted > 0]
    return chi2.sf(((found - wanted) ** 2 / wanted).sum(), len(wanted) - 1) > 1e-6


@pytest.mark.parametrize("sigma", [1, 2, 3, 7])
def test_it_has_its_own_distribution(sigma):
    draws = discrete_gaussians(words(), sigma, 100_000)
    x = np.arange(-12 * sigma, 12 * sigma + 1)
    chances = np.exp(-(x**2) / (2 * sigma**2))
    counts = np.array([(draws == value).sum() for value in x])
    assert counts.sum() == 100_000
    assert fits(counts, chances / chances.sum())


def test_large_sigmas_look_like_the_normal_and_keep_their_last_bits():
    sigma = int(1.3 * 2**31) + 1
    draws = discrete_gaussians(words(2), sigma, 50_000)
    assert kstest(draws / sigma, "norm").pvalue > 1e-6
    assert fits(np.bincount(draws & 15, minlength=16), np.full(16, 1 / 16))
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 0.03


def test_the_same_words_give_the_same_draws_and_no_count_too_many():
    one, other = discrete_gaussians(words(3), 1000, 500), discrete_gaussians(words(3), 1000, 500)
    assert (one == other).all()
    assert len(discrete_gaussians(words(3), 5, 0)) == 0


@pytest.mark.parametrize("b", [0, 1, 4, 9])
def test_coins_of_exponential_chance(b):
    coins, lanes = _Coins(words(4), 10), 40_000
    for coin, chance in ((coins._exp_ratio, np.exp(-b / 10)), (coins._exp_half_square, np.exp(-(b**2) / 200))):
        up = coin(np.full(lanes, b)).sum()
        assert abs(up - lanes * chance) <= 5 * np.sqrt(lanes * chance * (1 - chance)) + 1e-6


def test_uniform_numbers_below_a_limit():
    found = _Coins(words(5), 1)._below(10, 50_000)
    assert fits(np.bincount(found, minlength=10), np.full(10, 0.1))


@pytest.mark.parametrize("sigma", [0, -1, 1.5, 2**53])
def test_other_sigmas_are_refused(sigma):
    with pytest.raises(InputError):
        discrete_gaussians(words(), sigma, 1)
