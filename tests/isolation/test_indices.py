"""An index that is out of range is the affair of its own record: it reads and writes nothing of another one's."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from tacit.isolation import Watched, map_records
from tacit.randomness import RecordChance

_RECORDS, _ODD = 16, 7


def _mapped(function, indices):
    chance = RecordChance(bytes(16), np.arange(_RECORDS, dtype=np.uint64))
    return map_records(function, (torch.arange(_RECORDS * 6.0).view(_RECORDS, 6), indices), chance)


@pytest.mark.parametrize(
    "change", [torch.index_fill, torch.Tensor.index_fill, lambda x, *how: x.clone().index_fill_(*how)]
)
def test_an_entry_that_is_counted_from_the_end_is_the_records_own(change):
    indices = torch.zeros(_RECORDS, 1, dtype=torch.long)
    indices[_ODD] = -1
    found = _mapped(lambda batch: change(batch[0], 1, batch[1][0], -1.0), indices)
    wanted = torch.arange(_RECORDS * 6.0).view(_RECORDS, 6)
    wanted[:, 0], wanted[_ODD, 0], wanted[_ODD, 5] = -1.0, wanted[_ODD, 0].item(), -1.0
    assert torch.equal(found, wanted)


def test_an_entry_beyond_the_table_of_a_record_is_an_error_of_that_record():
    indices = torch.zeros(_RECORDS, 1, dtype=torch.long)
    indices[_ODD] = 6
    with pytest.raises(IndexError):
        _mapped(lambda batch: functional.embedding(batch[1], batch[0][0, :, None])[:, 0], indices)


def test_a_tensor_that_is_resized_keeps_its_own_first_entries():
    found = _mapped(lambda batch: batch[0].clone().resize_(1, 2), torch.zeros(_RECORDS, 1))
    assert torch.equal(found, torch.arange(_RECORDS * 6.0).view(_RECORDS, 6)[:, :2])


def test_a_class_that_is_none_is_refused_by_ctc_loss_where_a_target_has_not_ended():
    scores = torch.zeros(3, 1, 2).log_softmax(2)
    with Watched(()):
        filled_up = functional.ctc_loss(scores, torch.tensor([[1, -1]]), (3,), (1,), reduction="none")
        with pytest.raises(IndexError, match="ctc_loss is out of range"):
            functional.ctc_loss(scores, torch.tensor([[1, 2]]), (3,), (2,), reduction="none")
        with pytest.raises(IndexError, match="ctc_loss is out of range"):
            functional.ctc_loss(scores, torch.tensor([1]), (3,), (2,), reduction="none")
    assert filled_up.isfinite().all()
