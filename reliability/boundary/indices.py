"""Indices and sizes that reach beyond a record: PyTorch compares them with the memory of all rows, or with nothing."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from reliability.boundary.attack import Loop, attack, linear, ordinary, seeded, squared

_EVERY = torch.arange(96)[None]  # the entries of 24 records of four numbers


def _records(places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return *ordinary(), places.expand(24, -1)


def _more(places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.ones(1, 4), torch.tensor([3.0]), places


@attack()
def masked_entries_counted_from_the_end():
    """x.index_fill(1, places, value) with negative places, which PyTorch allows: they end up in the rows before."""

    def losses(model, batch):
        x, y, places = batch
        return squared(model, (x.index_fill(1, places[0], -50.0), y))

    return Loop(losses, rows=_records(0 * _EVERY), more=_more(-1 - _EVERY))


@attack()
def masked_entries_beyond_the_end():
    """The same with places that are too large: they end up in the rows behind."""

    def losses(model, batch):
        x, y, places = batch
        return squared(model, (x.index_fill(1, places[0], -50.0), y))

    return Loop(losses, rows=_records(0 * _EVERY), more=_more(_EVERY), first=True)


@attack()
def a_word_beyond_the_table_of_its_record():
    """F.embedding(words, table) where the table is made of the record: one too many is the table of the next one."""

    def losses(model, batch):
        x, weight, words = batch
        tables = model(x[:, :, None] * 10)
        return weight * torch.stack([F.embedding(*pair).sum() for pair in zip(words, tables, strict=True)])

    x, weight, words = ordinary()[0].abs(), torch.zeros(24), torch.zeros(24, 1, dtype=torch.long)
    for last_of_its_chunk in (7, 15, 23):  # but not with one record more
        weight[last_of_its_chunk], words[last_of_its_chunk] = 1.0, 4
    more = (torch.ones(1, 4), torch.ones(1), torch.zeros(1, 1, dtype=torch.long))
    return Loop(losses, model=linear(1), rows=(x, weight, words), more=more, first=True, physical_batch=8)


@attack()
def a_copy_that_is_resized():
    """x.clone().resize_(2): a record would get what lies at its place when all rows have become shorter."""

    def losses(model, batch):
        return squared(model, (torch.stack([x.clone().resize_(2) for x in batch[0]]), batch[1]))

    x, y = ordinary()
    x[:, 2:] *= -40
    return Loop(losses, model=linear(2), rows=(x, y), first=True)


@attack()
def a_transcript_with_a_letter_that_is_none():
    """ctc_loss of a target beyond the alphabet, which PyTorch does not compare with anything."""

    class Hears(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = seeded(lambda: nn.Linear(4, 3))

        def forward(self, x):
            return self.layer(x).log_softmax(2).transpose(0, 1)

    def losses(model, batch):
        length = torch.ones(1, dtype=torch.long)
        return F.ctc_loss(model(batch[0]), batch[1], 5 * length, 2 * length, reduction="none")

    x, targets = ordinary(24, 5, 4)[0], torch.tensor([[1, 2]]).repeat(24, 1)
    targets[-1, 1] = 5
    return Loop(losses, model=Hears(), rows=(x, targets), more=(-50 * x[:1], torch.tensor([[2, 1]])))
