"""Places run together where they can be, and said why where they cannot."""

import numpy as np

from tacit.isolation import run_apart


def test_an_error_that_all_places_share_is_a_reason_and_one_place_s_own_is_not():
    for at_fault, wanted in ((range(6), 1), ([3], 0)):
        done = []

        def together(places, filled, at_fault=at_fault, done=done):
            if set(places) & set(at_fault):
                raise IndexError("private")
            done.extend(places)

        reasons = run_apart(np.arange(6), together, done.extend)
        assert sorted(done) == list(range(6))
        assert len(reasons) == wanted
        assert not any("private" in reason for reason in reasons)  # a record may be in the words of an error
