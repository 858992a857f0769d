"""Losses that ask about values are told that a graph is traced, and go on without; others are not told, and do less."""

import numpy as np
import pytest
import torch
from torch import nn

from tacit.gradients import clipped_sum
from tacit.losses import ModelLosses, RecordGroup
from tacit.mechanisms import ClipRecords, GaussianNoise, build_mechanism


class Padded(nn.Module):
    """Means over words, as libraries write them: with a mask only where one is needed, or where nobody may ask."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(9, 6), nn.Linear(6, 3)

    def forward(self, tokens, mask=None):
        values = self.words(tokens)
        if mask is None or (not torch.compiler.is_compiling() and mask.all()):
            ways.append("plain")
            return self.head(values.mean(1))
        ways.append("masked")
        return self.head((values * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))


ways: list[str] = []  # a name that the guard of a bare clipped_sum is not given


def losses(model, batch):
    return nn.functional.cross_entropy(model(*batch[:-1]), batch[-1], reduction="none")


def summed(of_model, batch, strategy="auto", chunk=100):
    shapes = {name: value.shape for name, value in of_model.params.items()}
    mechanism = build_mechanism(ClipRecords(0.3), GaussianNoise(multiplier=1.0), shapes, slack=1e-3)
    return clipped_sum(of_model, of_model.params, batch, mechanism, chunk=chunk, strategy=strategy)


@pytest.fixture
def data():
    torch.manual_seed(0)
    mask = torch.ones(20, 5, dtype=torch.bool)
    mask[7:, 4] = mask[11:, 3] = False
    return torch.randint(0, 9, (20, 5)), mask, torch.randint(0, 3, (20,))


@pytest.fixture(autouse=True)
def unwatched(monkeypatch):
    """What the losses leave in ``ways`` is the test's own affair."""
    monkeypatch.setattr("tacit.isolation.guard.StateGuard.put_back", lambda self: [])
    ways.clear()


def close(one, other):
    for name, value in other.sums.items():
        torch.testing.assert_close(one.sums[name].double(), value, rtol=1e-5, atol=1e-7)


def test_where_nobody_asks_the_losses_run_as_the_user_s_own(data):
    of_model = ModelLosses(Padded(), losses)
    found = summed(of_model, data[::2], "fast")
    assert ways == ["plain"]
    close(found, summed(of_model, data[::2], "record"))


def test_who_asks_about_records_is_told_and_runs_once_for_all_of_them(data):
    of_model = ModelLosses(Padded(), losses)
    found = summed(of_model, data, "fast")
    assert ways == ["masked"]
    again = summed(of_model, data, "fast")
    assert ways == ["masked"] * 2  # and was not asked a second time
    assert all(torch.equal(again.sums[name], value) for name, value in found.sums.items())
    close(found, summed(of_model, data, "record"))


def test_another_form_of_records_is_asked_anew(data):
    of_model = ModelLosses(Padded(), losses)
    summed(of_model, data, "fast")
    summed(of_model, data[::2], "fast")
    assert ways == ["masked", "plain"]


def test_in_several_parts_and_forms_the_second_look_goes_the_same_way(data):
    plain, masked = RecordGroup(data[::2], np.arange(20)), RecordGroup(data, np.arange(20, 40))
    for groups in ([plain, masked], [masked, plain], [RecordGroup(data, np.arange(20))]):
        of_model = ModelLosses(Padded(), losses)
        close(summed(of_model, groups, "fast", chunk=16), summed(of_model, groups, "record"))


@pytest.mark.parametrize("masked", [False, True])
def test_a_record_at_fault_changes_no_bit_of_the_others(data, masked):
    """A word that there is not raises before the question, or where none is asked."""
    assert_no_bit_depends_on(1000, losses, data if masked else data[::2])


def test_what_only_an_untold_function_cannot_do_is_no_lesson_for_the_others(data):
    def checked(model, batch):
        if torch.compiler.is_compiling():
            return losses(model, batch) * 1.001
        assert_range = torch.zeros(9)[batch[0]]  # raises for the word 9, which is not looked up
        return losses(model, (batch[0] % 9, batch[1])) + 0 * assert_range.sum()

    assert_no_bit_depends_on(9, checked, data[::2])


def assert_no_bit_depends_on(word, losses, batch):
    """With one record that holds the word, and without that record."""
    others, model = [row for row in range(20) if row != 3], Padded()
    tokens = batch[0].clone()
    tokens[3] = word
    found = summed(ModelLosses(model, losses), (tokens, *batch[1:]))
    without = summed(ModelLosses(model, losses), tuple(part[others] for part in batch))
    assert torch.equal(found.squared_norms[others], without.squared_norms)


def test_a_statistic_asked_for_is_one_of_the_record(data):
    """As if each had been alone, whoever answers otherwise."""

    def branching(model, batch):
        values = model(batch[0])
        if not torch.compiler.is_compiling() and values.max() > 0:
            values = values * 2
        return nn.functional.cross_entropy(values, batch[1], reduction="none")

    of_model = ModelLosses(Padded(), branching)
    close(summed(of_model, data[::2]), summed(of_model, data[::2], "record"))
