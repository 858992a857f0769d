"""Ranks as a value. Real processes are started by reliability/f25_ranks.py, which the suite runs with two ranks."""

import numpy as np
import pytest
import torch
from conftest import classify
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import tacit
import tacit.training.private_sum as engine
from tacit.distributed import Ranks, current_ranks
from tacit.isolation import RecordGroup
from tacit.training.samples import Drawn


@given(st.integers(0, 50), st.integers(1, 5), st.integers(1, 9))
def test_every_unit_belongs_to_one_rank_and_blocks_do_not_depend_on_their_number(count, size, block):
    units = np.arange(count)
    parts = [Ranks(rank, size).part(units, block) for rank in range(size)]
    assert sorted(np.concatenate(parts)) == list(units)
    for rank, part in enumerate(parts):
        for start in range(0, len(part), block):
            number = part[start] // block
            assert Ranks(0, size).owners(count, block)[number] == rank
            assert list(part[start : start + block]) == list(units[number * block : (number + 1) * block])


def test_a_single_process_is_alone_and_does_what_it_would_do_anyway():
    ranks = current_ranks()
    assert ranks.alone
    assert ranks.first
    assert ranks.from_first({"a": 1}) == {"a": 1}
    assert list(ranks.same(np.array([3, 4]))) == [3, 4]
    with pytest.raises(ZeroDivisionError):
        ranks.together(lambda: 1 / 0)


def test_what_needs_all_records_at_once_is_refused_on_several_ranks(tmp_path, monkeypatch):
    class Two(Ranks):
        def share(self, tensors):
            pass

    monkeypatch.setattr(engine, "current_ranks", lambda: Two(0, 2))
    asked = (tacit.PoissonSampling(0.5, 5), tacit.ClipRecords(1.0), tacit.GaussianNoise(multiplier=1.0))
    for options in ({"unit": tacit.Microbatches(2, protect="record")},
                    {"evidence": tacit.EvidencePlan(members=True)}):  # fmt: skip
        with pytest.raises(tacit.InputError, match=r"one process|single process"):
            tacit.PrivateGradient(nn.Linear(2, 2), classify, *asked, ledger=tmp_path / "ledger.jsonl", **options)
    assert not (tmp_path / "ledger.jsonl").exists()


def test_a_sample_falls_into_blocks_of_units():
    chance = tacit.Randomness.seeded(1).record_chance(np.arange(6))
    rows = torch.arange(6.0)
    portions = [[RecordGroup(rows[:3], np.arange(3))], [RecordGroup(rows[3:], np.arange(3, 6))]]
    parts = list(Drawn(0, portions, [1, 2, 3], None, np.arange(3), 3, None, chance).blocks(2))
    assert [part.sizes for part in parts] == [[1, 2], [3]]
    groups = [group for part in parts for (group,) in part.portions]
    assert [group.batch.tolist() for group in groups] == [[0, 1, 2], [3, 4, 5]]
    assert [group.places.tolist() for group in groups] == [[0, 1, 2], [0, 1, 2]]
    assert (parts[1].chance.seeds == chance.seeds[3:]).all()
    assert not list(Drawn(0, [], None, None, np.arange(0), 0, None, chance.take(np.arange(0))).blocks(2))
