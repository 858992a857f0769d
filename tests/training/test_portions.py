"""A sample that is larger than the memory it may take is read in portions, and nothing else changes."""

import itertools

import numpy as np
import pytest
import torch
from conftest import classify
from torch import nn
from torch.utils.data import Dataset

import tacit
from tacit.errors import BudgetError, InputError
from tacit.sampling.units import DrawnRows
from tacit.training import private_sum
from tacit.training.reading.items import Items
from tacit.training.reading.memory import Fitting
from tacit.training.reading.samples import cut, twice

WIDE = 8000  # 32 kB a record: 16 of them, the fewest that are computed at once, and their copies take more than a MiB
NUMBERS = itertools.count()


class Wide(Dataset):
    """Records with chance of their own; some cannot be made, some are of another shape."""

    def __init__(self, records=70, faulty=(), longer=()):
        self.records, self.faulty, self.longer = records, set(faulty), set(longer)

    def __len__(self):
        return self.records

    def __getitem__(self, row):
        if row in self.faulty:
            raise ValueError(f"row {row} is torn")
        values = torch.randn(WIDE, generator=torch.Generator().manual_seed(row)) + torch.randn(1)
        return values[: WIDE - 2 * (row in self.longer)], row % 3


def short(model, batch):
    return classify(model, (batch[0][:, :5], batch[1]))


def noisy(batch):
    return batch[0] + torch.randn(()), batch[1]


def engine(folder, model, rate=1.0, **options):
    return tacit.PrivateGradient(
        model, short, tacit.PoissonSampling(rate, 30.0), tacit.ClipRecords(1.0), tacit.GaussianNoise(multiplier=1e-9),
        ledger=folder / f"{next(NUMBERS)}.jsonl", randomness=tacit.Randomness.seeded(1), **options,
    )  # fmt: skip


def released(folder, data, memory, *, unit=None, **options):
    """The gradient of one full sample."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.5), nn.Linear(4, 3))
    more = {} if unit is None else {"unit": unit}
    with engine(folder, model, memory=memory, **more) as private:
        for sample in private.samples(data, steps=1, **options):
            private.backward(sample)
    return torch.cat([p.grad.flatten().double() for p in model.parameters()])


def tensors():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(70, WIDE, generator=generator), torch.randint(0, 3, (70,), generator=generator)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (Wide, {}),
        (Wide, {"workers": 2}),
        (tensors, {}),
        (lambda: Wide(longer=range(0, 70, 3)), {}),
        (lambda: Wide(faulty=[*range(20, 44), 61]), {}),
        (lambda: Wide(faulty=[*range(20, 44), 61]), {"workers": 1}),
        (Wide, {"augment": noisy, "views": 2}),
        (Wide, {"unit": tacit.Users(), "user_ids": np.sort(np.arange(70) % 9)}),
        (tensors, {"unit": tacit.Microbatches(3)}),
    ],
    ids=["items", "workers", "tensors", "shapes", "faulty", "faulty in workers", "views", "users", "microbatches"],
)
def test_portions_change_nothing(tmp_path, make, options):
    whole, parts = (released(tmp_path, make(), memory, **options) for memory in (1000, 1))
    torch.testing.assert_close(whole, parts, rtol=1e-5, atol=1e-6)
    assert whole.norm() > 0.1


def test_no_more_is_read_at_once_than_fits(tmp_path, monkeypatch):
    asked, fetch = [], Items._fetch
    monkeypatch.setattr(Items, "_fetch", lambda self, rows: asked.append(len(rows)) or fetch(self, rows))
    released(tmp_path, Wide(), memory=1)
    assert sum(asked) == 71  # and the one for its shape
    assert max(asked) == 16
    asked.clear()
    released(tmp_path, Wide(), memory=1000)
    assert asked == [1, 70]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sample_shows_its_data_and_is_released_as_if_nobody_had_looked(tmp_path, workers):
    plain = released(tmp_path, Wide(), memory=1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Dropout(0.5), nn.Linear(4, 3))
    with engine(tmp_path, model, memory=1) as private:
        for sample in private.samples(Wide(), steps=1, workers=workers):
            one, again = sample.data, sample.data
            assert one[0].shape == (70, WIDE)
            assert torch.equal(one[0], again[0])
            private.backward(sample)
            assert torch.equal(sample.data[0], one[0])
    assert torch.equal(torch.cat([p.grad.flatten().double() for p in model.parameters()]), plain)


@pytest.mark.parametrize("workers", [0, 1])
def test_samples_may_be_released_later_or_never(tmp_path, workers):
    model = nn.Linear(5, 3)
    found = []
    for order in (lambda samples: samples, lambda samples: reversed(list(samples))):
        with engine(tmp_path, model, rate=0.5, memory=1) as private:
            released = {}
            for sample in order(private.samples(Wide(), steps=4, workers=workers)):
                if sample.step != 2:
                    model.zero_grad()
                    private.backward(sample)
                    released[sample.step] = model.weight.grad.clone()
        found.append(released)
    for step in (0, 1, 3):
        torch.testing.assert_close(found[0][step], found[1][step])


@pytest.mark.parametrize("workers", [0, 1])
def test_that_no_record_can_be_made_is_said_before_the_release(tmp_path, workers):
    model = nn.Linear(5, 3)
    with engine(tmp_path, model, memory=1, example=(torch.randn(8, WIDE), torch.zeros(8).long())) as private:
        (sample,) = private.samples(Wide(faulty=range(70)), steps=1, workers=workers)
        with pytest.raises(InputError, match="no record could be made: ValueError: row 0 is torn"):
            private.backward(sample)
        with pytest.raises(InputError, match="released before"):
            private.backward(sample)
        assert model.weight.grad is None
        assert private.ledger.steps == 1


class Remembers(Wide):
    """Begins to count in its last rows."""

    asked = 0

    def __getitem__(self, row):
        if 40 < row < 69:
            self.asked += 1
        return super().__getitem__(row)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_later_portion_is_guarded_like_the_first(tmp_path, workers):
    model = nn.Linear(5, 3)
    with engine(tmp_path, model, memory=1) as private:
        (sample,) = private.samples(Remembers(), steps=1, workers=workers)
        with pytest.raises(InputError, match="asked changed"):
            private.backward(sample)
        assert model.weight.grad is None


def test_an_error_of_a_later_step_waits_for_the_steps_before_it():
    def steps():
        yield from (1, 2)
        raise InputError("the budget is used up")

    ahead, here = twice(steps())
    assert list(ahead) == [1, 2]
    assert [next(here), next(here)] == [1, 2]
    with pytest.raises(InputError, match="used up"):
        next(here)


def test_workers_that_run_ahead_bring_every_sample_that_the_budget_pays(tmp_path):
    options = {"budget": tacit.Budget(1.0, 1e-5), "block": 1, "schedule": "adaptive", "memory": 1}
    found = []
    for workers in (0, 2):
        private = tacit.PrivateGradient(
            nn.Linear(5, 3), short, tacit.PoissonSampling(0.5, 30.0), tacit.ClipRecords(1.0),
            tacit.GaussianNoise(multiplier=4.0), ledger=tmp_path / f"{workers}.jsonl", **options,
        )  # fmt: skip
        taken = []
        with private, pytest.raises(BudgetError):
            taken.extend(sample.step for sample in private.samples(Wide(), steps=1000, workers=workers))
        found.append(taken)
    assert found[0] == found[1]
    assert len(found[0]) > 1


@pytest.mark.parametrize("sizes", [None, [1, 5, 1, 1, 2], [4, 4, 2], [10], [9, 1]])
@pytest.mark.parametrize("most", [1, 3, 4, 9, 10, 20])
def test_portions_are_whole_units_and_no_larger_than_they_must_be(sizes, most):
    drawn = DrawnRows(np.arange(10), None if sizes is None else np.array(sizes))
    bounds = cut(drawn, most)
    ends = {0, *np.cumsum(sizes or [1] * 10).tolist()}
    assert bounds[0] == 0
    assert bounds[-1] == 10
    assert set(bounds) <= ends
    for start, end in itertools.pairwise(bounds):
        assert start < end
        assert end - start <= max(most, min(e for e in ends if e > start) - start)


def test_deterministic_sums_get_portions_of_blocks_of_the_population():
    assert cut(DrawnRows(np.array([0, 3, 4, 11, 30])), most=1, width=4) == [0, 2, 3, 4, 5]
    users = DrawnRows(np.arange(10), sizes=np.array([1, 5, 1, 1, 2]), units=np.arange(5))
    assert cut(users, most=1, width=2) == [0, 6, 8, 10]
    assert cut(DrawnRows(np.arange(0)), most=1, width=4) == cut(DrawnRows(np.arange(0)), most=1) == [0]


def test_what_fits_is_bounded_by_the_budget():
    fitting = Fitting.of(64 * 2**20, row=2**20, record=2**17, loads=1)
    assert fitting.computed * (2**20 + 3 * 2**17) <= 64 * 2**20
    assert fitting.held * 3 * 2**17 <= 64 * 2**20
    ahead = Fitting.of(64 * 2**20, row=2**20, record=2**17, loads=5)
    assert ahead.computed < fitting.computed
    assert Fitting.of(2**20, row=2**30, record=1, loads=1).computed == 16
    assert Fitting.of(2**40, row=1, record=1, loads=1).computed == 4096
    assert Fitting.of(2**20, row=1, record=1, loads=1, computed=7).computed == 7
    assert Fitting.of(2**20, row=0, record=0, loads=1).computed == 256


def test_a_sample_larger_than_usual_is_computed_in_halves():
    fitting = Fitting.of(2**40, row=1, record=1, loads=1, usual=64)
    assert [fitting.at_once(rows) for rows in (1, 64, 72, 73, 128, 129)] == [4096, 4096, 4096, 37, 64, 4096]
    assert Fitting.of(2**40, row=1, record=1, loads=1, usual=16).at_once(32) == 4096  # halves are filled up to sixteen
    assert Fitting.of(2**40, row=1, record=1, loads=1, usual=64, computed=100).at_once(90) == 100  # as was asked for
    assert Fitting.of(2**40, row=2**36, record=1, loads=1, usual=64).at_once(90) == 16


@pytest.mark.parametrize(("records", "at_once"), [(30, 30), (50, 25), (70, 70)])
def test_halves_change_nothing_but_what_is_computed_at_once(tmp_path, monkeypatch, records, at_once):
    """30 records are declared: 50 are many, 70 would be usual."""
    model, chunks, real = nn.Sequential(nn.Linear(5, 4), nn.GELU(), nn.Linear(4, 3)), [], private_sum.clipped_sum
    data = torch.randn(records, 5, generator=torch.Generator().manual_seed(0)), torch.arange(records) % 3

    def noted(*given, chunk, **options):
        chunks.append(min(chunk, records))
        return real(*given, chunk=chunk, **options)

    monkeypatch.setattr(private_sum, "clipped_sum", noted)
    found = []
    for options in ({}, {"physical_batch": 1000}):
        with engine(tmp_path, model, **options) as private:
            for sample in private.samples(data, steps=1):
                private.backward(sample)
        found.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
        model.zero_grad()
    torch.testing.assert_close(*found, rtol=0, atol=1e-6)
    assert chunks == [at_once, records]


@pytest.mark.parametrize("memory", [0, -1, 1.5, True, "64"])
def test_a_budget_is_a_whole_number_of_mebibytes(tmp_path, memory):
    with pytest.raises(InputError, match="memory"):
        engine(tmp_path, nn.Linear(5, 3), memory=memory)


@pytest.mark.slow
def test_a_sample_of_4000_pictures_grows_the_process_by_little(monkeypatch):
    monkeypatch.syspath_prepend("benchmarks")
    from memory import measured

    (alone, _), (peak, _) = (measured("data set", records, 64, 1) for records in (1, 4000))
    assert peak - alone < 150
