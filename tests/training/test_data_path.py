"""The data path sees one record at a time: an ordinary collate_fn, augment or data set cannot make records depend."""

import functools
import itertools
import random

import numpy as np
import pytest
import torch
from conftest import classify
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset, default_collate

import tacit
from tacit.errors import InputError

CLIP = 1.0
ROUNDING = 1e-3
NUMBERS = itertools.count()


class Rows(Dataset):
    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data[0])

    def __getitem__(self, row):
        return self.data[0][row], self.data[1][row]


def one_step(folder, data, losses=classify, model=None, seed=1, **options):
    """The released sum of one full batch, with hardly any noise and seeded randomness."""
    torch.manual_seed(0)
    model = nn.Linear(5, 3) if model is None else model
    engine = tacit.PrivateGradient(
        model, losses, tacit.PoissonSampling(1.0, 1.0), tacit.ClipRecords(CLIP, rule="normalise"),
        tacit.GaussianNoise(multiplier=1e-9), ledger=folder / f"{next(NUMBERS)}.jsonl",
        randomness=tacit.Randomness.seeded(seed),
    )  # fmt: skip
    with engine:
        for sample in engine.samples(data, steps=1, **options):
            engine.backward(sample)
    return torch.cat([p.grad.flatten().double() for p in model.parameters()])


def moved(folder, make, more, **options):
    """How far one record more moves the sum, in units of the clip norm."""
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(20, 5, generator=generator), torch.randint(0, 3, (20,), generator=generator)
    with_it = torch.cat([x, more[None]]), torch.cat([y, torch.tensor([1])])
    one, other = (one_step(folder, make(data), **options) for data in ((x, y), with_it))
    return float((one - other).norm()) / CLIP


OUTLIER = torch.full((5,), 40.0)


def standardised(items):
    x, y = default_collate(items)
    return (x - x.mean(0)) / (x.std(0) + 1e-3 if len(x) > 1 else 1.0), y


def mixup(batch):
    order = torch.randperm(len(batch[0]))
    return 0.5 * batch[0] + 0.5 * batch[0][order], batch[1]


def scaled(batch):
    return batch[0] / batch[0].abs().max(), batch[1]


def noisy(batch):
    return batch[0] + torch.randn_like(batch[0]), batch[1]


class RandomRows(Rows):
    """Chance of all three kinds, in the number that a row's own first entry says."""

    def __getitem__(self, row):
        x, y = super().__getitem__(row)
        for _ in range(1 + int(x[0] > 0)):
            x = x + torch.randn(5) + float(np.random.randn()) + random.gauss(0, 1)
        return x, y


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (Rows, {"collate_fn": standardised}),
        (Rows, {"collate_fn": lambda items: mixup(default_collate(items))}),
        (tuple, {"augment": scaled, "views": 2}),
        (tuple, {"augment": mixup, "views": 2}),
        (tuple, {"augment": noisy, "views": 3}),
        (RandomRows, {}),
        (RandomRows, {"workers": 1}),
    ],
    ids=["standardise", "mixup", "scale", "mixup views", "noise views", "random items", "random items in workers"],
)
def test_one_record_moves_a_release_by_at_most_its_clip(tmp_path, make, options):
    assert moved(tmp_path, make, OUTLIER, **options) <= 1 + ROUNDING


class Sentences(Dataset):
    """Token rows of different lengths: the last is as long as asked."""

    def __init__(self, longest):
        self.lengths = [3, 7, 3, 5, 7, 4, *longest]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, row):
        return torch.arange(1, self.lengths[row] + 1) % 10, row % 2


class Reader(nn.Module):
    """Attends to its padding, as a careless model does: the mean over all positions."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 5)
        self.out = nn.Linear(5, 2)

    def forward(self, tokens):
        return self.out(self.embed(tokens).mean(1))


def padded(items):
    return pad_sequence([x for x, _ in items], batch_first=True), torch.tensor([y for _, y in items])


@pytest.mark.parametrize("workers", [0, 1])
def test_padding_lets_no_record_change_the_others(tmp_path, workers):
    found = []
    for longest in ([], [200]):
        torch.manual_seed(0)
        options = {"model": Reader(), "collate_fn": padded, "workers": workers}
        found.append(one_step(tmp_path, Sentences(longest), **options))
    assert float((found[0] - found[1]).norm()) <= 1 + ROUNDING


def test_records_of_several_shapes_are_summed_as_they_are_alone(tmp_path):
    alone = []
    for row in range(7):
        torch.manual_seed(0)
        alone.append(one_step(tmp_path, Subset(Sentences([9]), [row]), model=Reader(), collate_fn=padded))
    torch.manual_seed(0)
    together = one_step(tmp_path, Sentences([9]), model=Reader(), collate_fn=padded)
    torch.testing.assert_close(together, sum(alone), rtol=1e-5, atol=1e-6)


def test_the_chance_of_items_is_the_runs_and_the_users_own_is_left_alone(tmp_path, data):
    found = []
    for seed in (1, 1, 2):
        states = torch.manual_seed(0).get_state(), np.random.get_state()[1].copy(), random.getstate()
        found.append(one_step(tmp_path, RandomRows(data), seed=seed, augment=noisy, views=1))
        torch.manual_seed(0)
        assert torch.equal(torch.get_rng_state(), states[0])
        assert (np.random.get_state()[1] == states[1]).all()
        assert random.getstate() == states[2]
    assert torch.equal(found[0], found[1])
    assert not torch.allclose(found[0], found[2])


def test_workers_change_nothing(tmp_path, data):
    one, other = (one_step(tmp_path, RandomRows(data), workers=workers) for workers in (0, 2))
    assert torch.equal(one, other)


class Counting(Rows):
    asked = 0

    def __getitem__(self, row):
        self.asked += 1
        return self.data[0][row] * self.asked, self.data[1][row]


class RunningMean(Rows):
    def __init__(self, data):
        super().__init__(data)
        self.mean = torch.zeros(5)

    def __getitem__(self, row):
        self.mean.mul_(0.9).add_(self.data[0][row], alpha=0.1)
        return self.data[0][row] - self.mean, self.data[1][row]


class OwnGenerator(Rows):
    def __init__(self, data):
        super().__init__(data)
        self.rng = np.random.default_rng(0)

    def __getitem__(self, row):
        return self.data[0][row] + float(self.rng.normal()), self.data[1][row]


class Caching(Rows):
    def __init__(self, data):
        super().__init__(data)
        self.cache = {}

    def __getitem__(self, row):
        return self.cache.setdefault(row, super().__getitem__(row))


class FirstSeen(Rows):
    """A reference that whoever comes first decides for all."""

    reference = None

    def __getitem__(self, row):
        if self.reference is None:
            self.reference = Stats(self.data[0][row])
        return self.data[0][row] - self.reference.mean, self.data[1][row]


class FirstTensor(Rows):
    """The same in a tensor."""

    reference = None

    def __getitem__(self, row):
        if self.reference is None:
            self.reference = self.data[0][row].clone()
        return self.data[0][row] - self.reference, self.data[1][row]


class Stats:
    def __init__(self, mean):
        self.mean = mean


SEEN = []


class Hidden(Rows):
    """State that the data set reaches by the name of a global."""

    def __getitem__(self, row):
        SEEN.append(row)
        return self.data[0][row] * len(SEEN), self.data[1][row]


@pytest.mark.parametrize("wrap", [lambda r: r, lambda r: Subset(r, range(20)), lambda r: ConcatDataset([r])])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Counting, "asked"),
        (RunningMean, "mean"),
        (OwnGenerator, "rng"),
        (Caching, "cache"),
        (FirstSeen, "another record"),
        (FirstTensor, "another record"),
        (Hidden, "SEEN changed"),
    ],
)
def test_a_data_set_that_remembers_is_refused_before_a_charge(tmp_path, data, kind, name, wrap):
    engine = tacit.PrivateGradient(
        nn.Linear(5, 3), classify, tacit.PoissonSampling(0.5, 20), tacit.ClipRecords(1.0),
        tacit.GaussianNoise(multiplier=1.0), ledger=tmp_path / "ledger.jsonl",
    )  # fmt: skip
    with engine, pytest.raises(InputError, match=name) as error:
        next(engine.samples(wrap(kind(data)), steps=2))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "ledger.jsonl").exists()


class Later(Rows):
    """Begins to count only after the rows of the try-out."""

    asked = 0

    def __getitem__(self, row):
        if row not in (0, 19, 39):
            self.asked += 1
        return super().__getitem__(row)


class HiddenLater(Rows):
    """The same in a global."""

    def __getitem__(self, row):
        if row in (0, 19, 39):
            return super().__getitem__(row)
        SEEN.append(row)
        return self.data[0][row] * len(SEEN), self.data[1][row]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(("kind", "said"), [(Later, "asked changed"), (HiddenLater, "SEEN changed")])
def test_what_begins_to_remember_later_is_refused_before_its_release(tmp_path, data, kind, said, workers):
    with pytest.raises(InputError, match=said):
        one_step(tmp_path, kind(data), workers=workers, seed=2)


class Opening(Rows):
    """Opens its file when it is first asked, as data sets for several workers do."""

    file = None

    def __getitem__(self, row):
        if self.file is None:
            self.file = open(__file__)  # noqa: SIM115
        return super().__getitem__(row)


def test_a_handle_that_is_opened_on_demand_is_no_state(tmp_path, data):
    for workers in (0, 1):
        dataset = Opening(data)
        one_step(tmp_path, dataset, workers=workers)
        dataset.file.close()


class Loading(Rows):
    """Loads its data when it is first asked."""

    def __init__(self, data):
        self.source = data

    def __len__(self):
        return 40

    @functools.cached_property
    def data(self):
        return tuple(part.clone() for part in self.source)


@pytest.mark.parametrize("workers", [0, 1])
def test_data_that_is_loaded_on_demand_is_no_state(tmp_path, data, workers):
    assert torch.equal(one_step(tmp_path, Loading(data), workers=workers), one_step(tmp_path, Rows(data)))


def test_a_buffer_that_a_collate_hands_out_again_is_copied(tmp_path, data):
    buffer = np.zeros((1, 5), np.float32)

    def reusing(items):
        local = torch.from_numpy(buffer.copy())
        local[0] = items[0][0]
        return local, torch.tensor([int(items[0][1])])

    torch.testing.assert_close(one_step(tmp_path, Rows(data), collate_fn=reusing), one_step(tmp_path, Rows(data)))


@pytest.mark.parametrize(
    ("collate", "found"),
    [
        (lambda items: (torch.zeros(2, 5), torch.zeros(2)), "found 2"),
        (lambda items: (items[0][0], items[0][1]), "one row"),
        (lambda items: {"x": "a text"}, "str"),
        (lambda items: (torch.zeros(0, 5), torch.zeros(0)), "found 0"),
    ],
)
def test_a_collate_that_does_not_make_one_row_of_one_item_is_refused(tmp_path, data, collate, found):
    with pytest.raises(InputError, match=f"collate_fn.*{found}"):
        one_step(tmp_path, Rows(data), collate_fn=collate)


def test_an_augment_that_changes_the_number_of_records_is_refused(tmp_path, data):
    with pytest.raises(InputError, match="batch of one"):
        one_step(tmp_path, data, augment=lambda b: (torch.cat([b[0], b[0]]), torch.cat([b[1], b[1]])), views=1)


def test_an_augment_that_writes_into_its_batch_leaves_the_data_alone(tmp_path, data):
    before = data[0].clone()
    one_step(tmp_path, data, augment=lambda batch: (batch[0].mul_(3), batch[1]), views=2)
    assert torch.equal(data[0], before)


def test_an_augment_that_remembers_is_refused(tmp_path, data):
    seen = []

    def remembering(batch):
        seen.append(batch[0].mean())
        return batch[0] - sum(seen) / len(seen), batch[1]

    with pytest.raises(InputError, match=r"augment\.seen changed"):
        one_step(tmp_path, data, augment=remembering, views=1)


class Endless(IterableDataset):
    def __iter__(self):
        yield torch.zeros(5), 0


def test_records_that_cannot_be_made_are_refused_with_why():
    with pytest.raises(InputError, match="none of the first 8 records could be made: TypeError: default_collate"):
        tacit.DataSource([None] * 4).schema()


def test_an_iterable_data_set_is_refused_with_the_alternative(tmp_path):
    with pytest.raises(InputError, match="map-style"):
        tacit.DataSource(Endless())


class Column:
    """Stands for a pandas or polars column."""

    def __init__(self, values):
        self.to_numpy = lambda: values


def test_columns_of_numbers_in_any_form_are_tensors(tmp_path, data):
    x, y = data[0].numpy(), data[1].numpy()
    plain = one_step(tmp_path, data)
    for rows in ((x, y), (Column(x), Column(y)), (data[0], y), TensorDataset(*data), [*data]):
        assert torch.equal(one_step(tmp_path, rows), plain)

    def of_dict(model, batch):
        return classify(model, (batch["x"], batch["y"]))

    assert torch.equal(one_step(tmp_path, {"x": x, "y": Column(y)}, losses=of_dict), plain)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (np.array(["a", "b"]), "must hold numbers"),
        ({"x": np.zeros(3), "y": np.array(["a", "b", "c"])}, "'y'"),
        ([np.zeros(3), np.zeros(3)], "a list of arrays"),
        ({"x": ["a", "b"]}, "must hold numbers, found list"),
    ],
)
def test_rows_that_are_no_numbers_are_refused_in_a_line(rows, said):
    with pytest.raises(InputError, match=said):
        tacit.DataSource(rows)


def test_owners_may_be_texts_but_not_missing(data):
    assert tacit.DataSource(data, user_ids=["b", "a"] * 20).users.tolist() == [1, 0] * 20
    for ids in ([1, "1"] * 20, ["a", None] * 20, [1.0, float("nan")] * 20):
        with pytest.raises(InputError, match="user_ids"):
            tacit.DataSource(data, user_ids=ids).users  # noqa: B018


def test_a_memory_mapped_column_stays_in_its_file(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(12.0).reshape(6, 2))
    column = np.load(tmp_path / "x.npy", mmap_mode="r")
    rows = tacit.DataSource({"x": column}).rows["x"]
    assert rows.data_ptr() == column.__array_interface__["data"][0]
    assert rows.tolist() == column.tolist()


def test_lists_of_a_tokenizer_are_columns():
    source = tacit.DataSource({"ids": [[1, 2], [3, 4], [5, 6]], "label": [0, 1, 0]})
    assert source.rows["ids"].tolist() == [[1, 2], [3, 4], [5, 6]]
    with pytest.raises(tacit.InputError, match="different lengths"):
        tacit.DataSource({"ids": [[1, 2], [3]]})


def test_streams_are_refused_by_what_to_use_instead():
    with pytest.raises(tacit.InputError, match="memmap"):
        tacit.DataSource(Endless())
    with pytest.raises(tacit.InputError, match="behind it"):
        tacit.DataSource(iter([1, 2]))


def test_a_table_of_arrow_gives_its_columns():
    arrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    rows = tacit.DataSource(arrow.table({"x": np.arange(3.0), "y": np.arange(3)})).rows
    assert {name: column.tolist() for name, column in rows.items()} == {"x": [0.0, 1.0, 2.0], "y": [0, 1, 2]}
    with pytest.raises(InputError, match="'name' of the rows must hold numbers"):
        tacit.DataSource(arrow.table({"name": ["a", "b"]}))
