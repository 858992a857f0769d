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


def test_large_arrays_are_read_only_whatever_they_are_views_of():
    owner = np.zeros(10_000)
    view, part = owner.reshape(100, 100), owner[1:]
    holder = SimpleNamespace(part=part, view=view, owner=owner)  # views come first: they must be freed last
    with StateGuard(losses=holder):
        for array in (owner, view, part):
            with pytest.raises(ValueError, match="read-only"):
                array.flat[3] = 1.0
    assert all(array.flags.writeable for array in (owner, view, part))


def test_an_array_that_could_not_be_freed_again_is_compared_instead():
    holder = SimpleNamespace(bank=torch.zeros(100, 100).numpy())
    with pytest.raises(LossesError, match=r"losses\.bank"), StateGuard(losses=holder):
        holder.bank[1, 1] = 1.0
    assert holder.bank.flags.writeable


def test_tensors_of_inference_mode_are_compared():
    with torch.inference_mode():
        holder = SimpleNamespace(bank=torch.zeros(3))
    with pytest.raises(LossesError, match=r"losses\.bank"), StateGuard(losses=holder), torch.inference_mode():
        holder.bank[1] = 1.0
    assert not holder.bank.any()


def test_small_tensors_that_are_not_trained_are_put_back():
    model = nn.Linear(1, 1)
    model.register_buffer("seen", torch.zeros(2))
    guard = StateGuard(model=model)
    for known in (0.0, 5.0):  # what the user writes between two steps is theirs
        model.seen.fill_(known)
        with guard:
            pass
        with pytest.raises(LossesError, match=r"model\.seen"), guard:
            model.seen[0] = 7.0
        assert model.seen.tolist() == [known, known]


def test_a_tensor_that_was_given_another_shape_is_put_back():
    model = nn.Linear(1, 1)
    model.register_buffer("seen", torch.zeros(2))
    with pytest.raises(LossesError, match=r"model\.seen"), StateGuard(model=model):
        model.seen.resize_(3).fill_(7.0)
    assert model.seen.tolist() == [0.0, 0.0]


@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_what_a_script_keeps_is_put_back():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = 0
            self.register_buffer("total", torch.zeros(1))

        def forward(self):
            self.count += 1
            self.total.add_(1)

    model = torch.jit.script(Counting())
    with pytest.raises(LossesError, match=r"model\.(count|total)"), StateGuard(model=model):
        model()
    assert (model.count, float(model.total)) == (0, 0.0)


def test_the_compiler_may_name_its_cache(monkeypatch):
    """PyTorch does so when checkpoint or torch.func are first used."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    with StateGuard(model=nn.Linear(1, 1)):
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "somewhere")
