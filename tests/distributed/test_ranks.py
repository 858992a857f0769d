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
from tacit.distributed.whole_sums import as_floats, whole_sums
from tacit.losses import RecordGroup
from tacit.mechanisms import build_mechanism
from tacit.training.reading.samples import Drawn


@given(st.integers(0, 50), st.integers(1, 5), st.integers(1, 9))
def test_every_unit_belongs_to_one_rank_and_blocks_do_not_depend_on_their_number(count, size, block):
    ranks = [Ranks(rank, size) for rank in range(size)]
    parts = [one.units(np.arange(one.owned(count, block)), block) for one in ranks]
    assert sorted(np.concatenate(parts)) == list(range(count))
    for rank, part in enumerate(parts):
        assert (part // block % size == rank).all()
        assert (np.diff(part) > 0).all()


def test_a_single_process_is_alone_and_does_what_it_would_do_anyway():
    ranks = current_ranks()
    assert ranks.alone
    assert ranks.first
    assert ranks.from_first({"a": 1}) == {"a": 1}
    assert list(ranks.dealt(np.array([3, 4]))) == [3, 4]
    assert ranks.most(3) == 3
    with pytest.raises(ZeroDivisionError):
        ranks.together(lambda: 1 / 0)


def test_rows_fall_into_as_many_passes_as_the_busiest_rank_needs():
    class Busy(Ranks):
        def most(self, number):
            return max(number, 3)  # another rank's

    assert Ranks().even_share(10, 4) == 4
    assert Ranks().even_share(0, 4) == 1
    assert Busy(0, 2).even_share(10, 16) == 4
    assert Busy(0, 2).even_share(2, 16) == 1


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
    parts = list(Drawn(0, portions, [1, 2, 3], None, np.array([0, 1, 2]), None, chance).blocks(2))
    assert [part.sizes for part in parts] == [[1, 2], [3]]
    groups = [group for part in parts for (group,) in part.portions]
    assert [group.batch.tolist() for group in groups] == [[0, 1, 2], [3, 4, 5]]
    assert [group.places.tolist() for group in groups] == [[0, 1, 2], [0, 1, 2]]
    assert (parts[1].chance.seeds == chance.seeds[3:]).all()
    assert not list(Drawn(0, [], None, None, np.arange(0), None, chance.take(np.arange(0))).blocks(2))


def test_whole_sums_stand_for_the_numbers_and_too_many_are_refused():
    mechanism = build_mechanism(
        tacit.ClipRecords(0.5), tacit.GaussianNoise(multiplier=1.0), {"w": torch.Size([3])}, slack=0.0
    )
    sums = {"w": torch.tensor([0.1, -7.0, 1e-13], dtype=torch.float64)}
    whole = whole_sums(mechanism, sums)
    assert whole["w"].dtype == torch.int64
    assert torch.allclose(as_floats(mechanism, whole)["w"], sums["w"], rtol=0, atol=2.0**-41)
    with pytest.raises(tacit.InputError, match="4 million"):
        whole_sums(mechanism, {"w": torch.full((3,), 1e7, dtype=torch.float64)})


def test_a_seed_is_taken_apart_by_rank_and_a_secure_key_is_each_process_own():
    seeded = tacit.Randomness.seeded(1)
    assert seeded.for_rank(0) is seeded
    draws = [tacit.Randomness.seeded(1).for_rank(rank).normals(4).tolist() for rank in range(3)]
    assert len({tuple(draw) for draw in draws}) == 3
    assert draws[1] == tacit.Randomness.seeded(1).for_rank(1).normals(4).tolist()
    assert seeded.for_rank(2).kind == "seeded"
