"""State that is kept between calls, and state that leaves: buffers, attributes, caches, layers that remember."""

import array
import ctypes
import functools

import numpy as np
import torch
from torch import Tensor, nn

from reliability.boundary.attack import (
    Loop,
    Then,
    attack,
    linear,
    network,
    ordinary,
    outlier,
    rare_token,
    seeded,
    squared,
    tokens,
)

# ---- what layers of PyTorch remember ----


class Words(nn.Module):
    """An embedding, averaged, and a linear layer."""

    def __init__(self, **options) -> None:
        super().__init__()
        self.words = seeded(lambda: nn.Embedding(20, 4, **options))
        self.layer = linear(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.words(x).mean(1))


def _about_words(model: nn.Module, **more) -> Loop:
    return Loop(model=model, rows=tokens(), more=rare_token(), **more)


@attack("A3")
def embedding_with_max_norm():
    """nn.Embedding(max_norm=1): the rows of the words that occur are changed in place."""
    return _about_words(Words(max_norm=1.0))


@attack()
def embedding_scaled_by_frequency():
    """nn.Embedding(scale_grad_by_freq=True): gradients by how often a word is in the batch."""
    return _about_words(Words(scale_grad_by_freq=True), alive=False)


@attack()
def embedding_scaled_by_frequency_with_padding():
    """The same with padding_idx: PyTorch's rule under vmap keeps padding to the first record of every chunk."""
    rows = torch.full((24, 6), 5)
    rows[[6, 13, 20]] = 0  # first of their chunks once there is one record more
    model = Words(scale_grad_by_freq=True, padding_idx=0)
    model.layer.requires_grad_(False)
    return Loop(_summed, model=model, rows=(rows, torch.zeros(24)), more=rare_token(), first=True, physical_batch=8)


@attack()
def a_table_of_the_record_with_padding():
    """F.embedding(words, table, padding_idx=0) where the table itself is made from the record."""

    class Pointer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = linear(1, 4)

        def forward(self, x):
            table = self.layer(torch.ones(20, 1) + 0 * x[0, 0])
            return nn.functional.embedding(x[0], table, padding_idx=0).sum()[None, None]

    rows = torch.full((24, 6), 5)
    rows[[6, 13, 20]] = 0
    return Loop(_summed, model=Pointer(), rows=(rows, torch.zeros(24)), more=rare_token(), first=True, physical_batch=8)


def _summed(model: nn.Module, batch) -> Tensor:
    return 100 * model(batch[0]).flatten(1).sum(1)


@attack()
def embedding_bag():
    """nn.EmbeddingBag over flat words and offsets of the whole batch."""

    class Bags(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag = seeded(lambda: nn.EmbeddingBag(20, 1, max_norm=1.0))

        def forward(self, x):
            return self.bag(x.flatten(), torch.arange(0, x.numel(), x.shape[1]))

    return _about_words(Bags())


@attack("A3")
def buffer_with_the_largest_input():
    """Remember the range of the inputs, to check it when the model is used."""

    class Ranged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = linear()
            self.register_buffer("largest", torch.zeros(()))

        def forward(self, x):
            self.largest.copy_(torch.maximum(self.largest, x.detach().abs().max()))
            return self.layer(x)

    return Loop(model=Ranged())


@attack("A3")
def quantisation_observer():
    """Prepared for quantisation: an observer keeps the least and the largest activation."""
    from torch.ao.quantization.observer import MinMaxObserver

    class Observed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.observer = linear(), MinMaxObserver()

        def forward(self, x):
            return self.layer(self.observer(x))

    return Loop(model=Observed())


def _running(write, read=lambda module: module.mean, **more):
    """A running mean of the inputs that is subtracted: written in the way given."""

    class Running(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = linear()
            self.register_buffer("mean", torch.zeros(4))
            self.float_mean = 0.0

        def forward(self, x):
            out = self.layer(x - read(self))
            write(self, x.detach().mean(0))
            return out

    return Loop(model=Running(), steps=3, **more)


@attack("A3")
def running_mean_by_assignment():
    """self.mean = 0.9 * self.mean + 0.1 * x.mean(0)."""

    def write(module, mean):
        module.mean = 0.9 * module.mean + 0.1 * mean

    return _running(write)


@attack()
def running_mean_by_data():
    """self.mean.data = ..., which autograd does not see."""

    def write(module, mean):
        module.mean.data = 0.9 * module.mean.data + 0.1 * mean

    return _running(write)


@attack()
def running_mean_by_copy():
    """self.mean.copy_(...)."""
    return _running(lambda module, mean: module.mean.copy_(0.9 * module.mean + 0.1 * mean))


@attack()
def running_mean_by_data_in_place():
    """self.mean.data.mul_(0.9).add_(...): no version counter notices."""
    return _running(lambda module, mean: module.mean.data.mul_(0.9).add_(mean, alpha=0.1))


@attack()
def running_mean_by_numpy():
    """self.mean.numpy()[:] = ...: no version counter notices."""

    def write(module, mean):
        values = module.mean.numpy()
        values[:] = 0.9 * values + 0.1 * mean.numpy()

    return _running(write)


@attack()
def running_mean_as_a_python_number():
    """self.float_mean = ... .item()."""

    def write(module, mean):
        module.float_mean = 0.9 * module.float_mean + 0.1 * mean.mean().item()

    return _running(write, lambda module: module.float_mean)


@attack()
def running_mean_in_a_closure():
    """A Python list outside of the module holds the mean."""
    box = [torch.zeros(4)]

    def write(module, mean):
        box[0] = 0.9 * box[0] + 0.1 * mean

    return _running(write, lambda module: box[0])


@attack()
def running_mean_as_a_parameter_without_gradient():
    """A parameter with requires_grad=False, written under no_grad."""
    model = Then(lambda x: x - model.mean)
    model.mean = nn.Parameter(torch.zeros(4), requires_grad=False)

    def losses(model, batch):
        each = squared(model, batch)
        with torch.no_grad():
            model.mean.mul_(0.9).add_(batch[0].mean(0), alpha=0.1)
        return each

    return Loop(losses, model=model, steps=3)


@attack()
def running_mean_in_a_plain_tensor_attribute():
    """A tensor attribute that was never registered as a buffer."""
    model = Then(lambda x: x - model.mean)
    model.mean = torch.zeros(4)

    def losses(model, batch):
        each = squared(model, batch)
        model.mean = 0.9 * model.mean + 0.1 * batch[0].mean(0)
        return each

    return Loop(losses, model=model, steps=3)


@attack()
def a_list_on_the_module_collects():
    """self.history.append(x.mean()) for a plot."""

    class Plotted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.history = linear(), []

        def forward(self, x):
            self.history.append(x.detach().mean())
            return self.layer(x)

    return Loop(model=Plotted())


@attack()
def a_class_attribute_collects():
    """A statistic for all instances, on the class."""

    class Counted(nn.Module):
        largest = 20.0

        def __init__(self) -> None:
            super().__init__()
            self.layer = linear()

        def forward(self, x):
            out = self.layer(x * (20.0 / type(self).largest))
            type(self).largest = max(type(self).largest, float(x.detach().abs().max()))
            return out

    return Loop(model=Counted(), steps=2, rows=_shallow())


@attack()
def a_module_with_slots():
    """An attribute in __slots__, which is in no __dict__."""

    class Slotted(nn.Module):
        __slots__ = ("largest",)

        def __init__(self) -> None:
            super().__init__()
            self.layer = linear()

        def forward(self, x):
            largest = getattr(self, "largest", 20.0)
            object.__setattr__(self, "largest", max(largest, float(x.detach().abs().max())))
            return self.layer(x * (20.0 / largest))

    return Loop(model=Slotted(), steps=2, rows=_shallow())


@attack()
def a_module_with_a_private_slot():
    """An attribute in __slots__ that Python stores under another name, because it begins with two underscores."""

    class Private(nn.Module):
        __slots__ = "__largest"

        def __init__(self) -> None:
            super().__init__()
            self.layer = linear()
            object.__setattr__(self, "_Private__largest", 20.0)

        def forward(self, x):
            largest = self.__largest
            object.__setattr__(self, "_Private__largest", max(largest, float(x.detach().abs().max())))
            return self.layer(x * (20.0 / largest))

    return Loop(model=Private(), steps=2, rows=_shallow())


@attack()
def a_number_in_memory_of_c():
    """ctypes.c_double: an object without attributes that holds a number."""
    largest = ctypes.c_double(20.0)

    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.largest = linear(), largest

        def forward(self, x):
            scale = 20.0 / self.largest.value
            self.largest.value = max(self.largest.value, float(x.detach().abs().max()))
            return self.layer(x * scale)

    return Loop(model=Bare(), steps=2, rows=_shallow())


@attack()
def an_array_of_pythons_own():
    """array.array, which is neither a list nor numpy's."""
    largest = array.array("d", [20.0])

    def losses(model, batch):
        scale = 20.0 / largest[0]
        largest[0] = max(largest[0], float(batch[0].detach().abs().max()))
        return squared(model, (batch[0] * scale, batch[1]))

    return Loop(losses=losses, steps=2, rows=_shallow())


@attack()
def a_module_with_its_own_getattr():
    """__getattr__ and __setattr__ that keep state in a store outside."""
    store = {"largest": 20.0}

    class Elsewhere(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = linear()

        def __getattr__(self, name):
            return store[name] if name in store else super().__getattr__(name)

        def __setattr__(self, name, value):
            store.__setitem__(name, value) if name in store else super().__setattr__(name, value)

        def forward(self, x):
            out = self.layer(x * (20.0 / self.largest))
            self.largest = max(self.largest, float(x.detach().abs().max()))
            return out

    return Loop(model=Elsewhere(), steps=2, rows=_shallow())


@attack()
def state_in_a_helper_object():
    """self.meter = AverageMeter(): state in a plain object of the user's class."""

    class Meter:
        def __init__(self) -> None:
            self.largest = 20.0

        def update(self, value):
            self.largest = max(self.largest, value)

    class Metered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.meter = linear(), Meter()

        def forward(self, x):
            out = self.layer(x * (20.0 / self.meter.largest))
            self.meter.update(float(x.detach().abs().max()))
            return out

    return Loop(model=Metered(), steps=2, rows=_shallow())


# ---- normalisation ----


def _normed(layer: nn.Module, shape=(4,)) -> Loop:
    model = nn.Sequential(layer, nn.Flatten(), linear(int(np.prod(shape))))
    return Loop(model=model, rows=ordinary(24, *shape), more=outlier(*shape), steps=2)


@attack()
def batch_norm_in_training():
    """nn.BatchNorm1d as everyone uses it."""
    return _normed(nn.BatchNorm1d(4))


@attack()
def batch_norm_without_statistics():
    """BatchNorm1d(track_running_stats=False) mixes in eval too."""
    return _normed(nn.BatchNorm1d(4, track_running_stats=False).eval())


@attack()
def batch_norm_2d_frozen_affine_in_training():
    """BatchNorm2d without weights, in training mode: only its statistics are at work."""
    return _normed(nn.BatchNorm2d(2, affine=False), (2, 3, 3))


@attack()
def lazy_and_sync_batch_norm():
    """SyncBatchNorm, converted from BatchNorm."""
    return _normed(nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(4)))


@attack()
def functional_batch_norm():
    """F.batch_norm(training=True) in a forward of one's own."""
    norm = functools.partial(torch.nn.functional.batch_norm, running_mean=None, running_var=None, training=True)
    return Loop(model=Then(norm))


@attack()
def instance_norm_with_running_statistics():
    """InstanceNorm1d(track_running_stats=True) keeps the mean over the batch."""
    return _normed(nn.InstanceNorm1d(4, track_running_stats=True), (4, 5))


@attack()
def batch_norm_switched_to_training_mid_run():
    """model.eval() at the first step, model.train() from the second on."""
    model = nn.Sequential(nn.BatchNorm1d(4), linear())
    model.eval()
    return Loop(model=model, steps=2, before=lambda step: model.train(step > 0))


@attack()
def statistics_of_batch_norm_taken_away_mid_run():
    """BatchNorm in eval whose running statistics are taken away mid-run."""
    model = nn.Sequential(nn.BatchNorm1d(4), linear())
    model.eval()

    def before(step):
        if step:
            model[0].track_running_stats = False
            model[0].running_mean = model[0].running_var = None

    return Loop(model=model, steps=2, before=before)


@attack()
def statistics_tracked_from_the_second_step():
    """InstanceNorm that begins to keep statistics mid-run."""
    model = nn.Sequential(nn.InstanceNorm1d(4), nn.Flatten(), linear(20))

    def before(step):
        if step:
            model[0].track_running_stats = True
            model[0].running_mean, model[0].running_var = torch.zeros(4), torch.ones(4)

    return Loop(model=model, rows=ordinary(24, 4, 5), more=outlier(4, 5), steps=2, before=before)


@attack("A2")
def own_batch_normalisation_off_at_first():
    """One's own normalisation: in training only, and the loop begins in eval."""

    class Norm(nn.Module):
        def forward(self, x):
            return (x - x.mean(0)) / (x.std(0) + 1e-3) if self.training else x

    model = nn.Sequential(Norm(), linear())
    model.eval()
    return Loop(model=model, steps=2, before=lambda step: model.train(step > 0))


@attack("A2")
def branch_on_weights():
    """Normalise by the batch once the weights have become large."""

    def losses(model, batch):
        x, y = batch
        if model.weight.abs().max() > 5:
            x, y = x - x.mean(0), y - 2 * y.mean()
        return squared(model, (x, y))

    model = linear()

    def before(step):
        with torch.no_grad():
            model.weight.mul_(1.0 if step == 0 else 100.0)

    return Loop(losses, model=model, steps=2, before=before)


@attack("A2")
def layer_swapped_mid_run():
    """Progressive training: a layer is replaced at the second step by one that centres the batch."""
    model = nn.Sequential(nn.Identity(), linear())

    def before(step):
        if step:
            model[0] = Then(lambda x: x - x.mean(0))
            model[0].layer = nn.Identity()

    return Loop(model=model, steps=2, before=before)


@attack()
def forward_replaced_mid_run():
    """model.forward = ... between two steps, as adapters do."""
    model = linear()

    def before(step):
        if step:
            model.forward = lambda x: -nn.functional.linear(x - x.mean(0), model.weight, model.bias)

    return Loop(model=model, steps=2, before=before)


@attack()
def hook_registered_mid_run():
    """A forward hook is added between two steps."""
    model = network()

    def before(step):
        if step:
            model[0].register_forward_hook(lambda module, x, out: out - out.mean(0))

    return Loop(model=model, steps=2, before=before)


# ---- parametrisations ----


@attack("A3")
def spectral_norm_of_old():
    """torch.nn.utils.spectral_norm: u is moved at every call, so it tells how many chunks there were."""
    model = network()
    model[0] = seeded(lambda: torch.nn.utils.spectral_norm(nn.Linear(4, 8)))
    return Loop(model=model, physical_batch=24)


@attack("A3")
def spectral_norm_as_parametrisation():
    """torch.nn.utils.parametrizations.spectral_norm."""
    model = network()
    model[0] = seeded(lambda: torch.nn.utils.parametrizations.spectral_norm(nn.Linear(4, 8)))
    return Loop(model=model, physical_batch=24)


@attack()
def weight_norm_of_old():
    """torch.nn.utils.weight_norm sets the weight as an attribute at every call."""
    model = network()
    model[0] = seeded(lambda: torch.nn.utils.weight_norm(nn.Linear(4, 8)))
    return Loop(model=model, alive=True)


@attack()
def weight_norm_as_parametrisation():
    """torch.nn.utils.parametrizations.weight_norm."""
    model = network()
    model[0] = seeded(lambda: torch.nn.utils.parametrizations.weight_norm(nn.Linear(4, 8)))
    return Loop(model=model, alive=True)


# ---- batches of earlier calls ----


def _kept(keep, recall) -> Loop:
    """The largest of the batch before scales this one."""

    def losses(model, batch):
        x = batch[0]
        before = recall()
        if before is not None and before.shape == x.shape:
            x = x * torch.where((before.abs() > 20).any(), -1.0, 1.0)
        keep(batch[0].detach())
        return squared(model, (x, batch[1]))

    return Loop(losses, steps=2, first=True, rows=_mirrored())


@attack()
def batch_kept_in_a_closure():
    """previous = batch, in an enclosing variable."""
    box = []
    return _kept(lambda x: box.append(x), lambda: box[-1] if box else None)


@attack()
def batch_kept_in_a_global():
    """A global variable of the script."""
    globals().pop("_PREVIOUS", None)
    return _kept(lambda x: globals().__setitem__("_PREVIOUS", x), lambda: globals().get("_PREVIOUS"))


@attack()
def batch_kept_in_a_default_argument():
    """def recall(box=[]): the well-known slip."""

    def recall(value=None, box=[]):  # noqa: B006 (that is the slip)
        if value is not None:
            box.append(value)
        return box[-1] if box else None

    return _kept(recall, recall)


@attack()
def batch_kept_in_a_cache():
    """functools.cache on a helper that is called with the step."""
    latest = {}

    @functools.cache
    def scale(step):
        return latest.get("x")

    steps = iter(range(1000))
    return _kept(lambda x: latest.__setitem__("x", x), lambda: scale(next(steps)))


@attack()
def batch_kept_as_a_function_attribute():
    """losses.previous = x."""

    def recall():
        return getattr(recall, "previous", None)

    return _kept(lambda x: setattr(recall, "previous", x), recall)


@attack()
def batch_kept_on_the_module():
    """model.memory = x, for a recurrent state across batches."""
    model = linear()

    def losses(model, batch):
        x = batch[0]
        before = model.__dict__.get("memory")
        if before is not None and before.shape == x.shape:
            x = x - 0.5 * before
        model.memory = batch[0].detach()
        return squared(model, (x, batch[1]))

    return Loop(losses, model=model, steps=2)


@attack()
def activations_kept_for_a_second_term():
    """A list of activations that a regulariser of the next call uses: it is never emptied."""
    kept: list[Tensor] = []

    def losses(model, batch):
        out = model(batch[0])
        kept.append(out.detach())
        return (out[:, 0] - batch[1]).square() * (1 + torch.cat(kept).square().mean())

    return Loop(losses, steps=2, rows=_shallow())


# ---- what changes between steps ----


@attack("B2")
def layer_frozen_mid_run():
    """Fine-tuning: requires_grad_(False) for the first layer after the first step."""
    model = network()

    def before(step):
        model[0].requires_grad_(step == 0)

    return Loop(model=model, steps=2, before=before, alive=True)


@attack("B2")
def layer_unfrozen_mid_run():
    """Gradual unfreezing: the first layer joins after the first step."""
    model = network()
    model[0].requires_grad_(False)

    def before(step):
        model[0].requires_grad_(step > 0)

    return Loop(model=model, steps=2, before=before, alive=True)


@attack(apart=True)
def layer_replaced_by_a_wider_one_mid_run():
    """A wider layer between two steps: other shapes than were charged for."""
    model = network()

    def before(step):
        if step:
            model[0], model[2] = seeded(lambda: nn.Linear(4, 16)), linear(16)

    return Loop(model=model, steps=2, before=before)


@attack()
def dropout_switched_on_mid_run():
    """eval at first, then train with dropout: it has to work."""
    model = nn.Sequential(network(), nn.Dropout(0.5))
    model.eval()
    return Loop(model=model, steps=2, before=lambda step: model.train(step > 0))


def _shallow() -> tuple[Tensor, Tensor]:
    """Records whose gradients shrink when their inputs do."""
    x = torch.eye(4).repeat(6, 1)
    return x, torch.full((24,), 0.4)


def _mirrored() -> tuple[Tensor, Tensor]:
    """25 records: with one more the number of rows is another one, so that what was kept still fits."""
    x = torch.ones(24, 4)
    return x, torch.full((24,), 5.0)
