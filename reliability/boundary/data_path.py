"""The way from rows to batches: data sets, collation and augmentation that let one record touch another."""

import random

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

import tacit
from reliability.boundary.attack import Items, Loop, attack, linear, ordinary, outlier, seeded, squared


def _stacked(items):
    return torch.stack([x for x, _ in items]), torch.stack([y for _, y in items])


def _collated(change, **more) -> Loop:
    """A data set of items, and a collate_fn that stacks them and then does something to the batch."""
    return Loop(dataset=Items, samples={"collate_fn": lambda items: change(*_stacked(items))}, **more)


def _augmented(change, views=1, **more) -> Loop:
    return Loop(samples={"augment": lambda batch: change(*batch), "views": views}, **more)


# ---- collate_fn ----


@attack("A4")
def padded_to_the_longest():
    """collate_fn=pad_sequence: one long record makes all others longer."""
    items = [(torch.full((n,), 0.5), torch.tensor(3.0)) for n in (3, 4, 5, 6) * 6]
    more = [(torch.full((40,), 0.5), torch.tensor(3.0))]

    def collate(items):
        return pad_sequence([x for x, _ in items], batch_first=True, padding_value=1.0), torch.stack(
            [y for _, y in items]
        )

    def losses(model, batch):
        return (model(batch[0][..., None]).sum((1, 2)) - batch[1]).square()

    return Loop(losses, model=linear(1), rows=items, more=more, samples={"collate_fn": collate})


@attack("A4")
def standardised_in_collate():
    """Standardise each batch in collate_fn."""
    return _collated(lambda x, y: ((x - x.mean(0)) / (x.std(0, unbiased=False) + 1e-3), y))


@attack("A4")
def standardised_in_augment():
    """Standardise each batch in augment."""
    return _augmented(lambda x, y: ((x - x.mean(0)) / (x.std(0, unbiased=False) + 1e-3), y))


@attack("A4")
def mixup_in_collate():
    """Mixup in collate_fn: each record is blended with its mirror image."""
    return _collated(lambda x, y: (0.5 * x + 0.5 * x.flip(0), 0.5 * y + 0.5 * y.flip(0)))


@attack("A4")
def mixup_in_augment():
    """Mixup in augment."""
    return _augmented(lambda x, y: (0.5 * x + 0.5 * x.flip(0), 0.5 * y + 0.5 * y.flip(0)))


@attack()
def sorted_by_length_in_collate():
    """Sort inputs by size and forget the targets."""
    spread = torch.linspace(-30, 30, 24)
    rows = (torch.eye(4).repeat(6, 1) * torch.arange(1.0, 25.0)[:, None], spread)
    return _collated(lambda x, y: (x[x.abs().sum(1).argsort()], y), rows=rows, more=(torch.zeros(1, 4), spread[:1]))


@attack()
def short_ones_dropped_in_collate():
    """Records below the batch's mean size are left out: fewer rows than were given."""

    def change(x, y):
        keep = x.abs().sum(1) >= x.abs().sum(1).mean()
        return x[keep], y[keep]

    return _collated(change)


@attack()
def failed_items_dropped_in_collate():
    """Items that could not be read are None and left out: the well-known recipe."""

    def collate(items):
        return torch.utils.data.default_collate([item for item in items if item is not None])

    def item(index, row):
        return None if row[0].abs().max() > 20 else row

    return Loop(dataset=lambda rows: Items(rows, item), samples={"collate_fn": collate})


@attack()
def rows_repeated_in_collate():
    """Oversampling: rare records are repeated, more rows than were given."""

    def change(x, y):
        times = torch.where(y < 0, 30, 1)
        return x.repeat_interleave(times, 0), y.repeat_interleave(times, 0)

    return _collated(change)


@attack()
def collate_with_memory():
    """A collate_fn that keeps the largest value it has seen."""
    seen = [20.0]

    def change(x, y):
        seen[0] = max(seen[0], float(x.abs().max()))
        return x * (20 / seen[0]), y

    rows = (torch.eye(4).repeat(6, 1), torch.full((24,), 0.4))
    return _collated(change, steps=2, first=True, rows=rows)


@attack()
def collate_that_reuses_its_buffer():
    """One buffer for all batches, to save allocations."""
    buffer = torch.zeros(100, 4)

    def change(x, y):
        out = buffer[: len(x)]
        out.copy_(x)
        return out, y

    return _collated(change)


@attack()
def quantile_clipping_in_collate():
    """Winsorise by the batch's quantiles, with targets too."""
    return _collated(lambda x, y: (x, torch.where(x.abs().max() > 20, -y, y)))


@attack()
def branch_on_the_number_of_items():
    """collate_fn that treats a full batch in another way: len(items) > 24."""
    return _collated(lambda x, y: (x, -y if len(x) > 24 else y))


# ---- data sets ----


@attack("A4")
def stateful_data_set():
    """__getitem__ takes off the running mean of what was asked for before."""

    class Centred(Items):
        mean = torch.zeros(4)

        def __getitem__(self, index):
            x, y = self.rows[index]
            self.mean = 0.9 * self.mean + 0.1 * x
            return x - self.mean, y

    return Loop(dataset=Centred, first=True)


@attack()
def data_set_that_learns_its_range():
    """__getitem__ scales by the largest value seen so far."""

    class Ranged(Items):
        largest = 20.0

        def __getitem__(self, index):
            x, y = self.rows[index]
            self.largest = max(self.largest, float(x.abs().max()))
            return x * (20 / self.largest), y

    rows = (torch.eye(4).repeat(6, 1), torch.full((24,), 0.4))
    return Loop(dataset=Ranged, first=True, rows=rows)


@attack()
def data_set_that_normalises_by_the_rows_asked():
    """__getitems__: the loader asks for a whole batch at once, which is then centred."""

    class AtOnce(Items):
        def __getitems__(self, indices):
            x, y = _stacked([self.rows[index] for index in indices])
            return [*zip(x - x.mean(0), y - 2 * y.mean(), strict=True)]

    return Loop(dataset=AtOnce)


@attack()
def data_set_that_reuses_its_buffer():
    """__getitem__ fills one numpy buffer and returns a view of it: every item is the last one."""

    class Buffered(Items):
        def __init__(self, rows):
            super().__init__(rows)
            self.buffer = np.zeros(4, dtype=np.float32)

        def __getitem__(self, index):
            self.buffer[:] = self.rows[index][0].numpy()
            return torch.from_numpy(self.buffer), self.rows[index][1]

    return Loop(dataset=Buffered)


@attack()
def data_set_that_counts_its_calls():
    """A curriculum: after so many items the targets change."""

    class Curriculum(Items):
        calls = 0

        def __getitem__(self, index):
            self.calls += 1
            x, y = self.rows[index]
            return x, y if self.calls % 2 else -y

    return Loop(dataset=Curriculum, steps=2, first=True)


@attack(limit="what a data set makes of all its rows beforehand is the user's to account for")
def data_set_that_knows_its_length():
    """The last ten rows are held out by position: index >= len(self) - 10."""

    def held_out(rows):
        return Items(rows, lambda index, row: (row[0], row[1] * (-1 if index >= len(rows[0]) - 10 else 1)))

    return Loop(dataset=held_out)


@attack()
def data_set_that_remembers_in_workers():
    """The stateful data set, read by two workers."""
    loop = data_set_that_learns_its_range()
    loop.samples = {"workers": 2}
    return loop


@attack()
def items_of_several_shapes():
    """Rows of several lengths with default collation: it has to work or be refused in one line."""
    items = [(torch.ones(n, 4), torch.tensor(3.0)) for n in (2, 3) * 6]

    def losses(model, batch):
        return (model(batch[0]).mean((1, 2)) - batch[1]).square()

    return Loop(losses, rows=items, more=[(torch.full((7, 4), 9.0), torch.tensor(-3.0))])


@attack()
def items_that_alias_the_data_set():
    """The data set hands out its own rows, and the losses change them in place."""

    def losses(model, batch):
        each = squared(model, batch)
        batch[0].mul_(torch.where(batch[0].abs().max() > 20, -1.0, 1.0))
        return each

    return Loop(losses, steps=2)


# ---- augment, views, users, microbatches ----


@attack()
def augment_with_memory():
    """An augmentation that keeps the largest value it has seen."""
    seen = [20.0]

    def change(x, y):
        seen[0] = max(seen[0], float(x.abs().max()))
        return x * (20 / seen[0]), y

    rows = (torch.eye(4).repeat(6, 1), torch.full((24,), 0.4))
    return _augmented(change, steps=2, first=True, rows=rows)


@attack()
def augment_in_place():
    """An augmentation that changes its batch in place, twice for two views."""

    def change(x, y):
        x.sub_(0.5 * x.mean(0))
        return x, y

    return _augmented(change, views=2)


@attack()
def augment_by_cutmix():
    """CutMix: half of each record comes from the next one."""

    def change(x, y):
        mixed = x.clone()
        mixed[:, 2:] = x.roll(1, 0)[:, 2:].clamp(-5, 5)
        return mixed, y

    return _augmented(change, views=2, first=True)


@attack()
def augment_that_returns_other_rows():
    """Shuffled rows with the targets left in place."""
    return _augmented(lambda x, y: (x.flip(0), y), rows=(torch.linspace(-9, 9, 96).reshape(24, 4), ordinary()[1]))


@attack()
def users_with_rows_of_several_shapes():
    """unit=Users() over sequences that are padded to the longest in the batch."""
    items = [(torch.full((2 + n % 3,), 0.5), torch.tensor(3.0)) for n in range(24)]

    def collate(items):
        padded = pad_sequence([x for x, _ in items], batch_first=True, padding_value=1.0)
        return padded, torch.stack([y for _, y in items])

    def losses(model, batch):
        return (model(batch[0][..., None]).sum((1, 2)) - batch[1]).square()

    return Loop(
        losses, model=linear(1), rows=items, more=[(torch.full((40,), 0.5), torch.tensor(3.0))] * 2, unit=tacit.Users(),
        samples=lambda rows: {"user_ids": [row // 2 for row in range(len(rows))], "collate_fn": collate},
    )  # fmt: skip


@attack()
def users_and_a_batch_statistic():
    """unit=Users() with a branch on the batch."""

    def losses(model, batch):
        return squared(model, batch) * (-1.0 if batch[0].abs().max() > 20 else 1.0)

    return Loop(
        losses, unit=tacit.Users(), samples=lambda rows: {"user_ids": [row // 3 for row in range(len(rows[0]))]}
    )


@attack()
def a_user_with_one_row_more_changes_the_path():
    """Users of two rows each, and one of three: units of unequal sizes take another way through the engine."""

    def owners(rows):
        return {"user_ids": [min(row // 2, 11) if row < 24 else 12 for row in range(len(rows[0]))]}

    more = (outlier()[0].repeat(3, 1), outlier()[1].repeat(3))
    return Loop(unit=tacit.Users(), samples=owners, more=more, alive=True)


@attack("A8", row="F18")
def first_row_of_microbatches_dropped():
    """Microbatches(2, protect="record"): without the first row everybody has another companion."""
    return _paired(drop=True)


@attack(row="F18")
def row_in_front_of_microbatches():
    """The same with a row more in front."""
    return _paired(first=True)


def _paired(**more) -> Loop:
    """Pairs whose gradients cancel, and those of the new pairs do not: 5, -5, 10, -10, ..."""
    sizes = 5.0 * torch.arange(1, 21).repeat_interleave(2) * torch.tensor([1.0, -1.0]).repeat(20)
    return Loop(
        lambda model, batch: model(batch[0])[:, 0], model=seeded(lambda: nn.Linear(1, 1, bias=False)),
        rows=(sizes[:, None], torch.zeros(40)), more=(torch.ones(1, 1), torch.zeros(1)),
        unit=tacit.Microbatches(2, protect="record"), **more,
    )  # fmt: skip


@attack()
def microbatches_with_python_chance():
    """Microbatches of records whose losses draw from random.random()."""

    def losses(model, batch):
        return squared(model, batch) * (1 if random.random() < 0.5 else -1)

    return Loop(
        losses, unit=tacit.Microbatches(2), first=True, more=(outlier()[0].repeat(2, 1), outlier()[1].repeat(2))
    )
