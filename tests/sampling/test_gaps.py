"""Gaps between drawn units: exactly geometric, by float64 where it decides and by decimals where it does not."""

import numpy as np
import pytest

from tacit.randomness import Randomness
from tacit.sampling.gaps import _decided, _gaps, drawn_by_gaps


def words(count):
    return Randomness().words("sampling", count)


def fives(count):
    """The same further bits for everybody, where some are asked for."""
    return np.full(count, 5, dtype=np.uint64)


@pytest.mark.parametrize("threshold", [2**60, 2**64 // 1000, 2**64 // 10**9, 7])
def test_float64_and_decimals_decide_alike(threshold):
    some = np.concatenate([words(300), np.array([1, 2, 2**63, 2**64 - 2, 2**64 - 1], dtype=np.uint64)])
    exact = [_decided(threshold, int(word), fives) for word in some]
    found = _gaps(threshold, some, fives)
    assert [min(gap, 2**62) for gap in exact] == found.tolist()


def test_a_word_at_the_edge_of_a_gap_asks_for_more_bits():
    threshold = 2**60
    edge = int((1 - threshold / 2**64) ** 3 * 2**64)  # U = (1 - p)^3 to 53 bits: 64 of them cannot tell 2 from 3
    low, high = (_decided(threshold, word, words) for word in (edge - 4096, edge + 4096))
    assert (low, high) == (3, 2)
    asked = []
    _gaps(threshold, np.array([edge], dtype=np.uint64), lambda count: (asked.append(count), words(count))[1])
    assert asked


def test_the_word_zero_has_a_gap_too():
    assert _decided(2**60, 0, fives) > 600


def test_gaps_have_the_geometric_law():
    threshold, draws = 2**64 // 50, 200_000
    found = _gaps(threshold, words(draws), words)
    for k in (1, 10, 50, 200):
        expected = (1 - threshold / 2**64) ** k
        error = (expected * (1 - expected) / draws) ** 0.5
        assert abs((found >= k).mean() - expected) < 6 * error


def test_gaps_beyond_the_population_need_no_more_bits():
    """Audits draw nobody, at a rate so small that 64 bits decide no gap: decimals took minutes."""
    asked = []
    drawn = drawn_by_gaps(1, 10**6, lambda count: (asked.append(count), words(count))[1])
    assert len(drawn) == 0
    assert len(asked) == 1


def test_nobody_is_drawn_at_no_rate_and_a_long_run_needs_several_turns():
    assert len(drawn_by_gaps(0, 100, words)) == 0
    turns = []

    def few(count):
        turns.append(count)
        return words(min(count, 5))

    drawn = drawn_by_gaps(2**58, 100_000, few)
    assert len(turns) > 100
    assert abs(len(drawn) - 100_000 / 64) < 6 * (100_000 / 64) ** 0.5
