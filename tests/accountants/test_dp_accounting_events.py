import sys

import pytest

from tacit.accountants import ORDERS, RDPAccountant, from_dp_event, guarantees, to_dp_event
from tacit.errors import InputError, RefusedError
from tacit.ledger import BallsInBinsStep, Charge, FixedSizeSample, GaussianSumQuery, Ledger, PoissonSample

dp = pytest.importorskip("dp_accounting")


def ledger(*rows):
    return Ledger.planned([Charge(PoissonSample(q, (GaussianSumQuery(1.0, z),)), n) for q, z, n in rows])


def test_there_and_back():
    given = ledger((0.01, 1.0, 100), (1.0, 5.0, 3))
    assert from_dp_event(to_dp_event(given)).merged() == given.merged()


def test_fixed_size_there_and_back():
    given = Ledger.planned([Charge(FixedSizeSample(10, 100, (GaussianSumQuery(1.0, 3.0),)), 7)])
    assert from_dp_event(to_dp_event(given)).merged() == given.merged()


def test_groups_become_their_merged_multiplier():
    queries = (GaussianSumQuery(1.0, 2.0), GaussianSumQuery(2.0, 4.0))
    back = from_dp_event(to_dp_event(Ledger.planned([Charge(PoissonSample(0.1, queries), 5)])))
    assert back.charges[0].event.noise_multiplier == pytest.approx(2**0.5)


def test_what_has_no_counterpart_is_refused_by_name():
    with pytest.raises(RefusedError, match="balls_in_bins"):
        to_dp_event(Ledger.planned([Charge(BallsInBinsStep(5, (GaussianSumQuery(1.0, 1.0),)), 5)]))
    with pytest.raises(RefusedError, match="LaplaceDpEvent"):
        from_dp_event(dp.LaplaceDpEvent(1.0))


def test_a_missing_library_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(InputError, match="pip install dp-accounting"):
        to_dp_event(Ledger())


@pytest.mark.slow
def test_rdp_is_never_above_theirs():
    from dp_accounting import rdp

    given = ledger((0.01, 1.0, 500), (0.02, 2.0, 200), (1.0, 40.0, 5))
    theirs = rdp.RdpAccountant(orders=ORDERS).compose(to_dp_event(given)).get_epsilon(1e-5)
    ours = RDPAccountant().guarantee(given, delta=1e-5).epsilon
    assert theirs * 0.95 <= ours <= theirs * (1 + 1e-9)


@pytest.mark.slow
def test_fixed_size_is_never_above_theirs():
    from dp_accounting import NeighboringRelation, rdp

    given = Ledger.planned([Charge(FixedSizeSample(100, 10_000, (GaussianSumQuery(1.0, 4.0),)), 500)])
    accountant = rdp.RdpAccountant(range(2, 64), NeighboringRelation.REPLACE_ONE)
    theirs = accountant.compose(to_dp_event(given)).get_epsilon(1e-5)
    assert RDPAccountant().guarantee(given, delta=1e-5).epsilon <= theirs


@pytest.mark.slow
def test_pld_brackets_theirs():
    from dp_accounting import pld

    given = ledger((0.01, 1.0, 500), (0.02, 2.0, 200))
    accountant = pld.PLDAccountant(value_discretization_interval=1e-4).compose(to_dp_event(given))
    assert guarantees(given, 1e-5)[0].lower <= accountant.get_epsilon(1e-5) * (1 + 1e-6)
