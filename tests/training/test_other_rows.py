"""One record in several rows is refused where it can be seen, and ordinary data sets are not."""

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset, random_split

from tacit.errors import InputError
from tacit.training.reading.other_rows import refuse_other_rows, refuse_repeats

X = torch.arange(96.0).reshape(24, 4)


class Rows(Dataset):
    def __init__(self, item, **columns):
        self.item = item
        for name, column in columns.items():
            setattr(self, name, column)

    def __len__(self):
        return 24

    def __getitem__(self, index):
        return self.item(self, index)


def seed(row):
    np.random.seed(row)


HONEST = {
    "a tensor": Rows(lambda self, row: self.x[row], x=X),
    "an array": Rows(lambda self, row: torch.from_numpy(self.x[row]), x=X.numpy()),
    "a list": Rows(lambda self, row: self.x[row] * 2, x=list(X)),
    "a row twice": Rows(lambda self, row: self.x[row] - self.x[row].mean(), x=X),
    "an order": Rows(lambda self, row: self.x[self.order[row]], x=X, order=list(reversed(range(24)))),
    "a public table": Rows(lambda self, row: self.x[row] + self.table[[1, 2]].sum(), x=X, table=torch.ones(5, 4)),
    "clips that do not overlap": Rows(lambda self, row: self.x[3 * row : 3 * row + 3], x=X.repeat(3, 1)),
    "names of classes": Rows(lambda self, row: (self.x[row], self.names[row % 3]), x=X, names=["a", "b", "c"]),
    "a data set behind": Rows(lambda self, row: self.data[row], data=TensorDataset(X)),
    "half of it": Subset(Rows(lambda self, row: self.x[row], x=X), range(12, 24)),
    "a part by chance": random_split(Rows(lambda self, row: self.x[row], x=X), [16, 8])[0],
    "two of them": ConcatDataset([TensorDataset(X), TensorDataset(X + 1)]),
    "items": [(row, 1) for row in X],
    "equal constants": [(1.0, 0)] * 24,
    "one that cannot be read": Rows(lambda self, row: self.nothing[row], x=X),
}


@pytest.mark.parametrize("name", HONEST)
def test_ordinary_data_sets_are_not_refused(name):
    refuse_repeats(HONEST[name])
    refuse_other_rows(HONEST[name], seed)


@pytest.mark.parametrize(
    "rows",
    [
        Subset(TensorDataset(X), [0, 1, 1]),
        Subset(Subset(TensorDataset(X), [5, 5]), [0, 1]),
        ConcatDataset([Subset(TensorDataset(X), [0]), TensorDataset(X), HONEST["items"], HONEST["items"]]),
        [(row, 1) for row in X] * 2,
    ],
)
def test_a_row_twice_is_refused(rows):
    with pytest.raises(InputError, match="are the same record"):
        refuse_repeats(rows)


def test_one_data_set_under_two_names_is_one():
    data = TensorDataset(X)
    with pytest.raises(InputError, match="rows 2 and 3 of the data set are the same record"):
        refuse_repeats(ConcatDataset([Subset(data, [4, 5, 6]), Subset(data, [6, 7])]))


@pytest.mark.parametrize("columns", [X, X.numpy(), list(X)], ids=["tensor", "array", "list"])
@pytest.mark.parametrize(
    "item",
    [
        lambda self, row: self.x[row] + self.x[np.random.randint(24)],
        lambda self, row: self.x[row] + self.x[row - 1],
        lambda self, row: self.x[max(row - 2, 0) : row + 1],
        lambda self, row: self.x[row] + (self[row - 1] if row % 2 else 0),
    ],
    ids=["partner", "difference", "window", "item"],
)
def test_items_of_several_rows_are_refused(item, columns):
    with pytest.raises(InputError, match=r"reads other rows of Rows\.x beside its own"):
        refuse_other_rows(Rows(item, x=columns), seed)


def test_items_by_lists_of_rows_are_refused():
    with pytest.raises(InputError, match=r"reads other rows of Rows\.x beside its own"):
        refuse_other_rows(Rows(lambda self, row: self.x[[row, row - 5]], x=X), seed)


@pytest.mark.parametrize("way", [lambda row: row % 24, lambda row: row // 3])
def test_rows_that_are_gone_over_several_times_are_refused(way):
    class Longer(Rows):
        def __len__(self):
            return 72

    with pytest.raises(InputError, match=r"goes over Longer\.data several times"):
        refuse_other_rows(Longer(lambda self, row: self.data[way(row)], data=TensorDataset(X)), seed)


def test_the_data_set_itself_is_left_alone():
    rows = Rows(lambda self, row: self.x[row], x=X)
    refuse_other_rows(rows, seed)
    assert (type(rows), rows.x is X) == (Rows, True)
