"""Private statistics: what a row can do to them is what the ledger was charged for."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import tacit
from tacit.errors import BudgetError, InputError
from tacit.features import StatisticsPlan, Whitening, private_statistics, unit_rows
from tacit.features.statistics import clipped_sums
from tacit.ledger import LedgerHeader

PLAN = StatisticsPlan(mean_noise=30.0, moment_noise=12.0)
HEADER = LedgerHeader(dataset="made up", dataset_size=100, randomness="seeded")


def rows(n=100, channels=4, positions=3, seed=0):
    return unit_rows(torch.randn(n, channels, positions, generator=torch.Generator().manual_seed(seed)))


def released(data, folder, plan=PLAN, header=HEADER):
    randomness = tacit.Randomness.seeded(1)
    return private_statistics(data, plan, ledger=folder / "ledger.jsonl", header=header, randomness=randomness)


@pytest.mark.parametrize("last", [torch.ones(4, 3), torch.full((4, 3), 1e30), torch.full((4, 3), float("nan"))])
def test_replay_one_row_moves_the_release_by_what_was_charged(last, tmp_path):
    data = rows()
    more = torch.cat([data, last[None]])
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    without, with_it = released(data, tmp_path / "a"), released(more, tmp_path / "b")
    assert (tmp_path / "a" / "ledger.jsonl").read_bytes() == (tmp_path / "b" / "ledger.jsonl").read_bytes()
    charged = tacit.read_ledger(tmp_path / "a").charges[0].event.queries
    moved = [with_it.mean - without.mean, with_it.second_moment - without.second_moment]
    for query, difference in zip(charged, moved, strict=True):
        assert float(difference.norm()) * 100 <= query.sensitivity + 1e-9
        assert float(difference.norm()) * 100 == pytest.approx(0.0 if bool(last.isnan().any()) else 1.0, abs=0.5)


def test_without_much_noise_they_are_the_statistics(tmp_path):
    data = rows()
    found = released(data, tmp_path, StatisticsPlan(1e-6, 1e-6))
    torch.testing.assert_close(found.mean.float(), data.mean(0), atol=1e-6, rtol=0)
    moment = torch.einsum("ncp,ndp->cd", data, data) / 100
    torch.testing.assert_close(found.second_moment.float(), moment, atol=1e-6, rtol=0)
    centred = data - data.mean(0)
    torch.testing.assert_close(
        found.covariance.float(), torch.einsum("ncp,ndp->cd", centred, centred) / 100, atol=1e-6, rtol=0
    )


def test_the_noise_is_what_the_ledger_says(tmp_path):
    found = released(rows(1, 40, 50), tmp_path)
    stddevs = [query.noise_stddev for query in tacit.read_ledger(tmp_path).charges[0].event.queries]
    assert float(found.mean.std()) * 100 == pytest.approx(stddevs[0], rel=0.1)
    upper = found.second_moment[torch.triu(torch.ones(40, 40), 1) > 0]
    assert float(upper.std()) * 100 == pytest.approx(stddevs[1] / 2**0.5, rel=0.15)  # a mean of two draws
    assert bool((found.second_moment == found.second_moment.T).all())


def test_the_budget_is_checked_before_data_is_read(tmp_path):
    class Unread(torch.Tensor):
        def split(self, *_):
            raise AssertionError("data was read")

    header = LedgerHeader(dataset="made up", dataset_size=100, epsilon=0.01, delta=1e-5, randomness="seeded")
    with pytest.raises(BudgetError):
        released(rows().as_subclass(Unread), tmp_path, StatisticsPlan(1.0, 1.0), header)
    assert tacit.read_ledger(tmp_path).steps == 0


def test_the_size_is_declared(tmp_path):
    with pytest.raises(InputError, match="declared number"):
        released(rows(), tmp_path, header=LedgerHeader(randomness="seeded"))
    with pytest.raises(InputError, match="rows must be"):
        released(rows()[None], tmp_path)


def test_statistics_and_training_share_a_ledger_and_a_budget(tmp_path):
    def losses(model, batch):
        return cross_entropy(model(batch[0]), batch[1], reduction="none")

    data, target = rows(), tacit.Budget(2.0, 1e-5)
    charge = tacit.ledger.Charge(PLAN.event(4, 3), 1)
    found = tacit.calibrate_noise(2.0, 1e-5, probability=0.5, steps=10, beside=[charge])
    alone = tacit.calibrate_noise(2.0, 1e-5, probability=0.5, steps=10)
    assert alone.noise_multiplier < found.noise_multiplier
    plan = tacit.TrainingPlan(
        tacit.PoissonSampling(0.5, 50), tacit.ClipRecords(1.0), tacit.GaussianNoise(found.noise_multiplier), 10,
        tmp_path / "ledger.jsonl", budget=target, dataset_size=100,
    )  # fmt: skip
    randomness = tacit.Randomness()
    statistics = private_statistics(data, PLAN, ledger=plan.ledger, header=plan.header(randomness))
    inputs = Whitening.of(statistics).apply_(data).flatten(1)
    run = tacit.train(tacit.SGD(nn.Linear(12, 2), losses, 1.0), (inputs, torch.zeros(100, dtype=torch.long)), plan)
    assert run.ledger.steps == 11
    epsilon = tacit.guarantees(run.ledger, 1e-5)[0].epsilon
    assert found.epsilon == pytest.approx(epsilon, rel=1e-6)
    assert epsilon <= 2.0


def test_sums_do_not_depend_on_how_rows_are_split():
    data = rows(1300)
    mechanism = PLAN.mechanism(4, 3)
    whole, parts = clipped_sums(data, mechanism), [clipped_sums(part, mechanism) for part in data.split(100)]
    for name, value in whole.items():
        torch.testing.assert_close(value, sum(part[name] for part in parts))
