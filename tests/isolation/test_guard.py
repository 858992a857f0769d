"""What the guard takes for a library's affair, and what for the user's."""

import sys
from collections import deque
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from tacit.errors import LossesError
from tacit.isolation import StateGuard
from tacit.isolation.memory import _is_installed


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
    assert _is_installed(name) is installed


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
