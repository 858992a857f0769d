"""Bugs of who takes part (F2, F7)."""

import numpy as np

from tacit.ledger import FixedSizeSample
from tacit.sampling import BallsInBinsSampling, FixedSizeSampling, PoissonSampling
from tests.mutants.mutant import Mutant, swap

TOP = float(2**64)
REAL = PoissonSampling.draws
REAL_BINS = BallsInBinsSampling.draws
REAL_FIXED = FixedSizeSampling.draws


def words(randomness, count):
    return randomness.words("sampling", count)


def poisson(draw):
    """Another way to draw: ``draw(policy, population, words)``, without end."""

    def draws(self, population, randomness):
        while True:
            yield draw(self, population, words(randomness, population))

    return lambda: [swap(PoissonSampling, "draws", draws)]


def higher(self, population, found):
    return np.flatnonzero(found / TOP < 1.2 * self.probability)


def slightly_higher(self, population, found):
    return np.flatnonzero(found / TOP < 1.02 * self.probability)


def three_percent_higher(self, population, found):
    return np.flatnonzero(found / TOP < 1.03 * self.probability)


def from_the_end(self, population, found):
    """Unit i looks at word n - i: one unit more changes everybody's word."""
    return np.flatnonzero(found[::-1] / TOP < self.probability)


def always_the_last(self, population, found):
    return np.union1d(np.flatnonzero(found / TOP < self.probability), [population - 1])


def in_pairs(self, population, found):
    return np.flatnonzero(np.repeat(found[: (population + 1) // 2], 2)[:population] / TOP < self.probability)


def never_empty(self, population, found):
    drawn = np.flatnonzero(found / TOP < self.probability)
    return drawn if len(drawn) else np.array([int(found.argmin())])


def capped(self, population, found):
    """A sample of at most its expected size: the rest is dropped."""
    drawn = np.flatnonzero(found / TOP < self.probability)
    return drawn[: int(self.probability * population)]


def shuffled(self, population, randomness):
    """Batches of a permutation, recorded as Poisson samples."""
    size = max(1, round(self.probability * population))
    while True:
        order = np.argsort(words(randomness, population))
        for start in range(0, population - size + 1, size):
            yield np.sort(order[start : start + size])


def in_order(self, population, randomness):
    size, start = max(1, round(self.probability * population)), 0
    while True:
        yield np.sort((np.arange(size) + start) % population)
        start += size


def every_sample_twice(self, population, randomness):
    for drawn in REAL(self, population, randomness):
        yield drawn
        yield drawn


def one_pass_for_all(self, population, randomness):
    found = words(randomness, population) % np.uint64(self.bins)
    while True:
        for number in range(self.bins):
            yield np.flatnonzero(found == number)


def with_replacement(self, population, randomness):
    while True:
        yield np.unique(words(randomness, self.size) % np.uint64(population)).astype(np.int64)


def first_half_more_often(self, population, randomness):
    while True:
        found = words(randomness, population) / TOP
        found[: population // 2] *= 0.7
        yield np.sort(np.argpartition(found, self.size - 1)[: self.size])


def drops_the_last_bin(self, population, randomness):
    while True:
        found = words(randomness, population) % np.uint64(self.bins + 1)
        for number in range(self.bins):
            yield np.flatnonzero(found == number)


MUTANTS = [
    Mutant("shuffled batches recorded as Poisson", "F2", lambda: [swap(PoissonSampling, "draws", shuffled)],
           "audit: sampler"),
    Mutant("records taken in order", "F2", lambda: [swap(PoissonSampling, "draws", in_order)], "audit: sampler"),
    Mutant("q 20 % high", "F2", poisson(higher), "audit: sampler"),
    Mutant("q 20 % high, seen by a canary", "F2", poisson(higher), "audit: canary, 1,500 steps"),
    Mutant("q 3 % high", "F2", poisson(three_percent_higher), "audit: sampler, 5e6 decisions", "rate ("),
    Mutant("q 2 % high", "F2", poisson(slightly_higher), "audit: sampler, 5e6 decisions"),
    Mutant("draws depend on the number of units", "F2", poisson(from_the_end), "audit: sampler"),
    Mutant("draws depend on the number of units, replayed", "F2", poisson(from_the_end), "audit: replay"),
    Mutant("the last unit is always drawn", "F2", poisson(always_the_last), "audit: sampler"),
    Mutant("units are drawn in pairs", "F2", poisson(in_pairs), "audit: sampler"),
    Mutant("empty sample replaced by one record", "F7", poisson(never_empty), "audit: sampler"),
    Mutant("large samples cut to the expected size", "F2", poisson(capped), "audit: sampler"),
    Mutant("every sample used twice", "F2", lambda: [swap(PoissonSampling, "draws", every_sample_twice)],
           "audit: sampler"),
    Mutant("one assignment for all passes of balls in bins", "F2", lambda: [
        swap(BallsInBinsSampling, "draws", one_pass_for_all)], "audit: sampler"),
    Mutant("balls in bins loses units", "F2", lambda: [swap(BallsInBinsSampling, "draws", drops_the_last_bin)],
           "audit: sampler"),
    Mutant("fixed size drawn with replacement", "F2", lambda: [swap(FixedSizeSampling, "draws", with_replacement)],
           "audit: sampler"),
    Mutant("fixed size prefers the first half", "F2", lambda: [swap(FixedSizeSampling, "draws", first_half_more_often)],
           "audit: sampler"),
    Mutant("fixed size mislabelled as add/remove", "F2", lambda: [swap(FixedSizeSample, "neighbours", "add_remove")],
           "test_the_statement_speaks_of_replacing"),
]  # fmt: skip
