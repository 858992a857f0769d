"""One record in several rows: oversampled, repeated, or read by the items of others."""

import numpy as np
import torch
from torch.utils.data import Dataset, Subset, TensorDataset

from reliability.boundary.attack import Items, Loop, attack


@attack()
def minority_class_oversampled():
    """Subset with the indices of rare records several times."""

    def oversampled(rows):
        data = TensorDataset(*rows)
        return Subset(data, [row for row in range(len(data)) for _ in range(3 if data[row][1] < 0 else 1)])

    return Loop(dataset=oversampled)


@attack()
def a_data_set_added_to_itself():
    """data + data, which is a ConcatDataset."""

    def doubled(rows):
        data = TensorDataset(*rows)
        return data + data

    return Loop(dataset=doubled)


@attack()
def a_list_that_is_doubled():
    """items + items."""
    return Loop(dataset=lambda rows: [*zip(*rows, strict=True)] * 2)


class _Repeated(Items):
    """Several crops of each record, as rows of their own."""

    def __len__(self) -> int:
        return 4 * len(self.rows)

    def __getitem__(self, index: int):
        return self.rows[self.item(index, len(self.rows))]


@attack()
def rows_gone_over_several_times():
    """data[index % len(data)] in a data set that says it is longer."""
    return Loop(dataset=lambda rows: _Repeated(rows, lambda index, size: index % size))


@attack()
def crops_as_rows_of_their_own():
    """data[index // 4]."""
    return Loop(dataset=lambda rows: _Repeated(rows, lambda index, size: index // 4))


class _Pairs(Dataset):
    def __init__(self, x, y, item) -> None:
        self.x, self.y, self.item = x, y, item

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int):
        return self.item(self.x, index), self.y[index]


def _mixed(x, index):
    return (x[index] + x[np.random.randint(len(x))]) / 2


@attack()
def mixup_in_a_data_set():
    """A partner that __getitem__ draws from the same tensor."""
    return Loop(dataset=lambda rows: _Pairs(*rows, _mixed))


@attack()
def mixup_in_a_data_set_of_arrays():
    """The same with numpy."""
    return Loop(dataset=lambda rows: _Pairs(rows[0].numpy(), rows[1], _mixed))


@attack()
def mosaic_of_a_data_set_behind():
    """Four items of the data set that is wrapped, in one."""

    class Mosaic(Dataset):
        def __init__(self, data) -> None:
            self.data = data

        def __len__(self) -> int:
            return len(self.data)

        def __getitem__(self, index: int):
            others = [index, *torch.randint(len(self.data), (3,)).tolist()]
            return torch.stack([self.data[other][0] for other in others]).mean(0), self.data[index][1]

    return Loop(dataset=lambda rows: Mosaic(TensorDataset(*rows)))


@attack()
def differences_to_the_row_before():
    """x[index] - x[index - 1]."""
    return Loop(dataset=lambda rows: _Pairs(*rows, lambda x, index: x[index] - x[index - 1]))


@attack()
def windows_over_a_series():
    """x[index : index + 4]: a row of the series is in four windows. The record stands in its middle."""

    class Windows(_Pairs):
        def __len__(self) -> int:
            return len(self.x) - 3

    def series(rows):
        x = torch.cat([rows[0][:12], rows[0][24:], rows[0][12:24]])
        return Windows(x, rows[1], lambda x, index: x[index : index + 4].mean(0))

    return Loop(dataset=series)
