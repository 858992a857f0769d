"""What the guard takes for a library's affair, and what for the user's."""

import sys
from collections import deque
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from tacit.errors import LossesError
from tacit.isolation import StateGuard
from tacit.isolation.libraries import is_installed


@pytest.mark.parametrize(
    ("file", "installed"),
    [
        ("/home/ann/.local/lib/python3.11/site-packages/some/__init__.py", True),
        ("/usr/lib/python3/dist-packages/some.py", True),
        ("/home/ann/study/some.py", False),
        (None, False),
    ],
)
def test_what_is_installed_for_a_user_or_by_the_system_is_a_library(monkeypatch, file, installed):
    name = f"some_{abs(hash(file))}"
    module = ModuleType(name)
    module.__file__ = file
    monkeypatch.setitem(sys.modules, name, module)
    assert is_installed(name) is installed


def test_what_is_run_is_never_a_library(monkeypatch):
    """``python -m cProfile train.py`` leaves its own module in the place of the script's."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["os"])
    is_installed.cache_clear()
    assert not is_installed("__main__")


def test_slots_are_put_back_whatever_they_are_called():
    class Kept:
        __slots__ = ("__hidden", "late")

        def __init__(self):
            self.__hidden = 1

        def see(self, value):
            self.__hidden = self.late = value

        def hidden(self):
            return self.__hidden

    model = nn.Linear(1, 1)
    model.kept = Kept()
    with pytest.raises(LossesError, match=r"model\.kept\."), StateGuard(model=model):
        model.kept.see(7)
    assert (model.kept.hidden(), hasattr(model.kept, "late")) == (1, False)


def test_the_engine_that_a_module_has_come_to_hold_is_not_looked_into(tmp_path):
    """A LightningModule holds its trainer, and that our strategy."""
    import tacit

    model = nn.Linear(2, 1)
    plan = (tacit.PoissonSampling(0.5, 8), tacit.ClipRecords(1.0), tacit.GaussianNoise(multiplier=1.0))
    losses = lambda model, batch: model(batch[0])[:, 0]  # noqa: E731
    with tacit.PrivateGradient(model, losses, *plan, ledger=tmp_path / "ledger.jsonl") as private:
        model.trainer = SimpleNamespace(private=private)
        for sample in private.samples((torch.randn(16, 2),), steps=2):
            private.backward(sample)
        assert private.ledger.steps == 2


def test_what_is_kept_for_every_record_is_seen_in_long_containers_too():
    for histories in ([[] for _ in range(6000)], {row: [] for row in range(6000)}):
        with pytest.raises(LossesError, match="histories"), StateGuard(histories=histories):
            deque((histories[row].append(row) for row in range(6000)), maxlen=0)
        with StateGuard(histories=histories):
            pass


class _Names(dict):
    pass


class _Rows(list):
    pass


class _Number(float):
    pass


class _Array(np.ndarray):
    pass


@pytest.mark.parametrize(
    "thing", [_Names(a=1), _Rows([1]), _Number(2.0), np.zeros(3).view(_Array), SimpleNamespace(a=1)], ids=type
)
def test_attributes_of_containers_and_numbers_are_seen_and_taken_away(thing):
    """What is a dictionary or a number besides has attributes like any other object of a user's class."""
    with pytest.raises(LossesError, match=r"thing\.seen changed"), StateGuard(thing=thing):
        thing.seen = 7
    assert not hasattr(thing, "seen")


def test_attributes_that_are_replaced_as_a_whole_are_put_back():
    model = nn.Linear(1, 1)
    before = model.__dict__
    with pytest.raises(LossesError, match="model"), StateGuard(model=model):
        model.__dict__ = {**before, "seen": 7}
    assert model.__dict__ is before
    with pytest.raises(LossesError, match=r"model\.__class__"), StateGuard(model=model):
        model.__class__ = nn.Bilinear
    assert type(model) is nn.Linear


def test_a_small_table_of_statistics_is_compared():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"seen": [0.0]})
    with pytest.raises(LossesError, match="frame changed"), StateGuard(frame=frame):
        frame.loc[0, "seen"] = 1.0


def test_what_a_function_hangs_on_a_library_is_taken_away_and_lazy_attributes_are_left_alone():
    def losses():
        torch.seen_before = [1]

    def lazy():
        return torch.ops.aten.sub, torch.nn.functional, torch.linalg.inv

    with pytest.raises(LossesError, match=r"losses\.torch\.seen_before"), StateGuard(losses=losses):
        losses()
    assert not hasattr(torch, "seen_before")
    with StateGuard(lazy=lazy):
        lazy()
