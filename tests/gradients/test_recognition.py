"""The user's own losses as a formula: if their calls are those of a dense network, and while nothing changes."""

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tacit.errors import LossesError
from tacit.gradients import clipped_sum, guard_of
from tacit.gradients.computing import Computing, learned
from tacit.losses import ModelLosses
from tacit.mechanisms import SLACK, ClipRecords, GaussianNoise, build_mechanism
from tacit.training.before_the_run import rounds_by_place


def classes(model, batch):
    return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def yes_or_no(model, batch):
    return functional.binary_cross_entropy_with_logits(model(batch[0])[:, 0], batch[1].float(), reduction="none")


def squares(model, batch):
    return (model(batch[0]).squeeze(1) - batch[1]).square()


def squares_of_targets(model, batch):
    return (batch[1] - model(batch[0])[..., 0]) ** 2


def mean_squares(model, batch):
    return functional.mse_loss(model(batch[0]).squeeze(-1), batch[1], reduction="none")


def by_name(model, batch):
    return functional.cross_entropy(model(batch["x"]), batch["y"], reduction="none")


def classes_of_pictures(model, batch):
    return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


class Viewed(nn.Module):
    """As people write it: pools and activations are called, and pictures are flattened by hand."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Conv2d(2, 4, 3), nn.Conv2d(4, 5, 2, bias=False), nn.Linear(20, 3)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.first(x)), 2, 1)
        x = torch.relu(self.second(x))
        return self.head(torch.max_pool2d(x, (1, 2)).view(x.size(0), -1))


def frozen_front():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 2), nn.Flatten(), nn.Linear(80, 3))
    model[0].requires_grad_(False)
    model[2].bias.requires_grad_(False)
    return model


def net(*parts):
    return lambda: nn.Sequential(*(part() for part in parts))


def linear(width, out, **more):
    return lambda: nn.Linear(width, out, **more)


def conv(*sizes, **more):
    return lambda: nn.Conv2d(*sizes, **more)


def pool(*sizes, **more):
    return lambda: nn.MaxPool2d(*sizes, **more)


RECOGNISED = {
    "linear": (net(linear(7, 3)), classes),
    "one column": (linear(7, 1), yes_or_no),
    "squares": (linear(7, 1), squares),
    "squares of targets": (linear(7, 1), squares_of_targets),
    "mean squares": (net(linear(7, 1, bias=False)), mean_squares),
    "hidden": (net(linear(7, 5), nn.ReLU, linear(5, 3)), classes),
    "deep": (net(linear(7, 5), nn.Tanh, linear(5, 4, bias=False), nn.Sigmoid, nn.Identity, linear(4, 1)), yes_or_no),
    "flattened": (net(nn.Flatten, linear(7, 3)), classes),
    "dropout that is off": (net(lambda: nn.Dropout(0.0), linear(7, 3)), classes),
    "by name": (net(linear(7, 3)), by_name),
    "large": (net(linear(7, 300), nn.ReLU, linear(300, 90), nn.ReLU, linear(90, 3)), classes),
    "large, of all activations": (
        net(linear(7, 150), nn.Tanh, linear(150, 150), nn.Sigmoid, linear(150, 1), nn.ReLU, linear(1, 1)),
        squares,
    ),
    "pictures": (net(conv(2, 5, 3), nn.ReLU, pool(2), nn.Flatten, linear(30, 3)), classes_of_pictures),
    "pictures, many stages": (
        net(
            conv(2, 6, 3, 2, padding=(1, 2), groups=2), lambda: nn.GroupNorm(3, 6), nn.Tanh,
            conv(6, 4, 2, dilation=2, bias=False), nn.Sigmoid, pool(2, 1, padding=1, ceil_mode=True),
            nn.Flatten, linear(48, 7), nn.ReLU, linear(7, 3),
        ),
        classes_of_pictures,
    ),
    "in place": (net(linear(7, 5), lambda: nn.ReLU(inplace=True), linear(5, 3)), classes),
    "pictures, in place": (
        net(
            conv(2, 5, 3), lambda: nn.GroupNorm(1, 5), lambda: nn.ReLU(True), pool(2),
            conv(5, 4, 2), lambda: nn.ReLU(True), nn.Flatten, linear(8, 3),
        ),
        classes_of_pictures,
    ),
    "pictures, as people write": (Viewed, classes_of_pictures),
    "pictures, frozen in part": (frozen_front, classes_of_pictures),
}  # fmt: skip


def rows_for(losses, rows=40, seed=0):
    torch.manual_seed(seed)
    x = 2 * torch.randn(rows, 2, 8, 7) if "pictures" in losses.__name__ else 2 * torch.randn(rows, 7)
    y = torch.randn(rows) if "squares" in losses.__name__ else torch.randint(0, 2, (rows,))
    return {"x": x, "y": y} if losses is by_name else (x, y)


class Engine:
    """What the training engine keeps from step to step."""

    def __init__(self, model, losses):
        torch.manual_seed(3)
        self.losses = ModelLosses(model if isinstance(model, nn.Module) else model(), losses)
        self.guard = guard_of(self.losses)
        shapes = {name: value.shape for name, value in self.losses.params.items()}
        self.mechanism = build_mechanism(ClipRecords(0.7), GaussianNoise(multiplier=1.0), shapes, slack=SLACK)

    def sum(self, batch, strategy="auto"):
        return clipped_sum(
            self.losses, self.losses.params, batch, self.mechanism, chunk=64, guard=self.guard, strategy=strategy
        )

    def learn(self, batch):
        """Where the first call finds out how many rows are needed, the losses run once more."""
        self.sum(batch)
        self.sum(batch)

    @property
    def is_known(self):
        return learned(self.losses).seen.still(self.guard, self.losses.params) is not None


def change(model):
    """What an optimizer does."""
    with torch.no_grad():
        for parameter in filter(lambda one: one.requires_grad, model.parameters()):
            parameter.add_(0.1)
            parameter.grad = torch.ones_like(parameter)


@pytest.mark.parametrize("name", RECOGNISED)
@pytest.mark.parametrize("rows", [1, 40, 5000])
def test_without_a_kernel_pytorch_computes_the_formula(name, rows, monkeypatch):
    kernels = "group_norm_forward", "group_norm_backward", "max_pool_backward"
    for kernel in ("dense_rows.dense_rows", *(f"known_networks.{kernel}" for kernel in kernels)):
        monkeypatch.setattr(f"tacit.gradients.{kernel}", lambda *given, **named: None)
    engine, batch = Engine(*RECOGNISED[name]), rows_for(RECOGNISED[name][1], rows)
    engine.learn(rows_for(RECOGNISED[name][1]))
    change(engine.losses.model)
    found, wanted = engine.sum(batch), engine.sum(batch, "fast")
    assert found.by_formula
    for one, value in wanted.sums.items():
        torch.testing.assert_close(found.sums[one].double(), value.double(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.squared_norms, wanted.squared_norms, rtol=1e-5, atol=1e-10)


@pytest.mark.parametrize("name", RECOGNISED)
def test_the_formula_gives_what_the_losses_give(name):
    engine, batch = Engine(*RECOGNISED[name]), rows_for(RECOGNISED[name][1])
    for _ in range(3):
        engine.learn(batch)
        change(engine.losses.model)
        found = engine.sum(batch)
        assert found.by_formula
        wanted = engine.sum(batch, "record")
        for parameter, value in wanted.sums.items():
            torch.testing.assert_close(found.sums[parameter].double(), value, rtol=2e-5, atol=1e-5)
        torch.testing.assert_close(found.squared_norms, wanted.squared_norms, rtol=5e-5, atol=1e-6)


@pytest.mark.parametrize("name", RECOGNISED)
def test_the_network_is_known_while_nothing_changes(name):
    engine, batch = Engine(*RECOGNISED[name]), rows_for(RECOGNISED[name][1])
    engine.learn(batch)
    change(engine.losses.model)
    assert engine.is_known


@pytest.mark.parametrize("name", [name for name in RECOGNISED if "large" in name or "pictures" in name])
def test_users_and_views_by_formula(name):
    engine, batch = Engine(*RECOGNISED[name]), rows_for(RECOGNISED[name][1], 48)
    engine.learn(batch)
    given = engine.losses, engine.losses.params
    viewed = tuple(part.view(16, 3, *part.shape[1:]) for part in batch)
    for rows, more in ((batch, {"sizes": [3] * 8 + [1] * 24}), (viewed, {"views": 3})):
        found, wanted = (
            clipped_sum(*given, rows, engine.mechanism, chunk=24, guard=engine.guard, strategy=how, **more)
            for how in ("auto", "record")
        )
        assert found.by_formula or "views" in more  # the batch has another form
        for one, value in wanted.sums.items():
            torch.testing.assert_close(found.sums[one].double(), value, rtol=2e-5, atol=1e-5)


def test_a_unit_of_more_rows_than_a_chunk_is_known_too(monkeypatch):
    engine, batch = Engine(*RECOGNISED["pictures"]), rows_for(classes_of_pictures, 48)
    engine.learn(batch)
    given = engine.losses, engine.losses.params, batch, engine.mechanism
    wanted = clipped_sum(*given, chunk=8, sizes=[12] * 4, strategy="record")
    monkeypatch.setattr(Computing, "__init__", None)  # nothing of the user's runs
    found = clipped_sum(*given, chunk=8, sizes=[12] * 4, guard=engine.guard)
    for name, value in wanted.sums.items():
        torch.testing.assert_close(found.sums[name].double(), value, rtol=2e-5, atol=1e-5)


@pytest.mark.skipif(rounds_by_place(), reason="products were formed before tacit was imported")
@pytest.mark.parametrize("name", [name for name in RECOGNISED if "large" in name or "pictures" in name])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_record_is_the_same_to_the_last_bit_in_any_company(name, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        engine, (inputs, targets) = Engine(*RECOGNISED[name]), rows_for(RECOGNISED[name][1], 300)
        engine.learn((inputs, targets))
        seen = set()
        for company in ([5], [5, 7], range(70), range(1, 290), [*range(6, 290), 5], range(3, 34)):
            places = list(company)
            found = engine.sum((inputs[places], targets[places]))
            assert found.by_formula
            seen.add(found.squared_norms[places.index(5)].numpy().tobytes())
        assert len(seen) == 1
    finally:
        torch.set_num_threads(before)


def test_a_frozen_layer_is_used_and_not_trained():
    model = nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3))
    model[0].requires_grad_(False)
    engine, batch = Engine(model, classes), rows_for(classes)
    engine.learn(batch)
    found, wanted = engine.sum(batch), engine.sum(batch, "record")
    assert found.by_formula
    assert found.sums.keys() == {"2.weight", "2.bias"}
    for name, value in wanted.sums.items():
        torch.testing.assert_close(found.sums[name], value, rtol=2e-5, atol=1e-6)


def test_a_frozen_layer_counts_as_it_is_now():
    """model[0].weight.data = ..., as target networks are renewed: no version counts it."""
    model = nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3))
    model[0].requires_grad_(False)
    engine, batch = Engine(model, classes), rows_for(classes)
    engine.learn(batch)
    model[0].weight.data = torch.randn(5, 7)
    found, wanted = engine.sum(batch), engine.sum(batch, "record")
    torch.testing.assert_close(found.squared_norms, wanted.squared_norms, rtol=2e-5, atol=1e-9)


def test_a_frozen_layer_that_does_not_fit_any_more_is_left_to_the_losses():
    model = nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3))
    model[2].requires_grad_(False)
    engine, batch = Engine(model, classes), rows_for(classes)
    engine.learn(batch)
    model[2].weight.data = torch.randn(3, 2)
    with pytest.raises(LossesError, match="fail on every record"):
        engine.sum(batch)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.scale = nn.Linear(7, 3), 1.0

    def forward(self, x):
        return self.layer(x) if self.scale == 1.0 else self.layer(x) * self.scale


SETTINGS = {"scale": 1.0}


def with_global(model, batch):
    logits = model(batch[0])
    return classes(lambda x: logits if SETTINGS["scale"] == 1.0 else 2 * logits, batch)


def set_attribute(engine):
    engine.losses.model.scale = 3.0


def set_global(engine):
    SETTINGS["scale"] = 2.0


def swap_layer(engine):
    engine.losses.model.layer = nn.Linear(7, 3)


def hook_layer(engine):
    engine.losses.model.layer.register_forward_hook(lambda module, given, output: 2 * output)


def hook_everything(engine):
    handle = nn.modules.module.register_module_forward_hook(lambda module, given, output: output)
    engine.undo = handle.remove


def replace_forward(engine):
    engine.losses.model.forward = lambda x: engine.losses.model.layer(x) * 0.5


def replace_forward_of_all(engine):
    """As patches of other people's models do."""
    original = nn.Linear.forward
    nn.Linear.forward = lambda layer, x: 3 * original(layer, x)
    engine.undo = lambda: setattr(nn.Linear, "forward", original)


def replace_call_of_all(engine):
    original = nn.Module.__call__
    nn.Module.__call__ = lambda module, x: 3 * original(module, x)
    engine.undo = lambda: setattr(nn.Module, "__call__", original)


@pytest.mark.parametrize(
    "action",
    [
        *(set_attribute, swap_layer, hook_layer, hook_everything, replace_forward),
        *(replace_forward_of_all, replace_call_of_all),
    ],
)
def test_a_change_of_the_model_is_noticed(action):
    engine, batch = Engine(Scaled(), classes), rows_for(classes)
    engine.sum(batch)
    assert engine.is_known
    action(engine)
    try:
        assert not engine.is_known
        wanted = engine.sum(batch, "record")
        torch.testing.assert_close(engine.sum(batch).squared_norms, wanted.squared_norms, rtol=2e-5, atol=1e-9)
    finally:
        getattr(engine, "undo", lambda: None)()


def test_a_change_of_what_the_losses_name_is_noticed():
    engine, batch = Engine(Scaled(), with_global), rows_for(classes)
    SETTINGS["scale"] = 1.0
    engine.sum(batch)
    assert engine.is_known
    set_global(engine)
    assert not engine.is_known
    wanted = engine.sum(batch, "record")
    torch.testing.assert_close(engine.sum(batch).squared_norms, wanted.squared_norms, rtol=2e-5, atol=1e-9)


def drawn(model, batch):
    return classes(model, batch) if random.random() < 2 else classes(model, batch) * 2


def drawn_by_numpy(model, batch):
    return classes(model, batch) if np.random.rand() < 2 else classes(model, batch) * 2


def asked(model, batch):
    return classes(model, batch) if batch[0].sum() < 1e9 else classes(model, batch) * 2


def smoothed(model, batch):
    return functional.cross_entropy(model(batch[0]), batch[1], reduction="none", label_smoothing=0.1)


def weighted(model, batch):
    return functional.cross_entropy(model(batch[0]), batch[1], reduction="none", weight=torch.tensor([1.0, 2.0, 3.0]))


def scaled(model, batch):
    return 2 * classes(model, batch)


def twice(model, batch):
    return classes(lambda x: model(model(x)[:, :1].expand(-1, 7)), batch)


def something_else(model, batch):
    model(batch[0] + 1)
    return classes(model, batch)


def other_column(model, batch):
    return functional.mse_loss(model(batch[0])[:, 1], batch[1].float(), reduction="none")


def input_as_target(model, batch):
    return functional.mse_loss(model(batch[0])[:, 0], batch[0][:, 0], reduction="none")


def multiplied_in_place(model, batch):
    return functional.cross_entropy(model(batch[0]).mul_(3.0), batch[1], reduction="none")


def divided_in_place(model, batch):
    outputs = model(batch[0])
    outputs /= 3.0
    return functional.cross_entropy(outputs, batch[1], reduction="none")


def activated_by_its_method(model, batch):
    return functional.cross_entropy(model(batch[0]).relu_(), batch[1], reduction="none")


def activated_after_use(model, batch):
    outputs = model(batch[0])
    losses = functional.cross_entropy(outputs, batch[1], reduction="none")
    functional.relu(outputs, inplace=True)
    return losses


def multiplied_by_an_operator(model, batch):
    outputs = model(batch[0])
    torch.ops.aten.mul_(outputs, 3.0)
    return functional.cross_entropy(outputs, batch[1], reduction="none")


def in_half_precision(model, batch):
    with torch.autocast("cpu", torch.bfloat16):
        outputs = model(batch[0])
    return functional.cross_entropy(outputs, batch[1], reduction="none")


def multiplied_unseen(value):
    with torch._C.DisableTorchFunction():  # as TorchScript does
        value.mul_(3.0)


def outputs_written_unseen(model, batch):
    outputs = model(batch[0])
    multiplied_unseen(outputs)
    return functional.cross_entropy(outputs, batch[1], reduction="none")


def inputs_written_unseen(model, batch):
    multiplied_unseen(batch[0])
    return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


OTHERS = [
    drawn, drawn_by_numpy, asked, smoothed, weighted, scaled, twice, something_else, other_column, input_as_target,
    multiplied_in_place, divided_in_place, activated_by_its_method, activated_after_use, multiplied_by_an_operator,
    outputs_written_unseen, inputs_written_unseen,
]  # fmt: skip


@pytest.mark.parametrize("losses", OTHERS, ids=lambda losses: losses.__name__)
def test_losses_that_do_anything_else_run_at_every_step(losses):
    engine, batch = Engine(nn.Linear(7, 3), losses), rows_for(classes)
    for _ in range(2):
        found, wanted = engine.sum(batch), engine.sum(batch, "record")
        assert not found.by_formula
        torch.testing.assert_close(found.squared_norms, wanted.squared_norms, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(7, 3), nn.Dropout(0.5)),
        nn.Sequential(nn.Linear(7, 4), nn.LayerNorm(4), nn.Linear(4, 3)),
        nn.Sequential(nn.Linear(7, 4), nn.GELU(), nn.Linear(4, 3)),
        nn.Sequential(nn.Linear(7, 3)).double(),
        nn.utils.parametrizations.weight_norm(nn.Linear(7, 3)),
    ],
)
def test_models_that_do_anything_else_run_at_every_step(model):
    engine, batch = Engine(model, classes), rows_for(classes)
    batch = (batch[0].double(), batch[1]) if next(model.parameters()).dtype == torch.float64 else batch
    engine.sum(batch)
    assert not engine.sum(batch).by_formula


class Shortcut(nn.Module):
    """A picture is read twice."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(2, 2, 3, padding=1), nn.Linear(112, 3)

    def forward(self, x):
        inner = self.conv(x)
        return self.head((functional.relu(inner) + inner).flatten(1))


SAME = nn.Conv2d(2, 2, 3, padding=1)


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Conv2d(2, 2, 2, padding="same"), nn.Flatten(), nn.Linear(112, 3)),
        nn.Sequential(nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"), nn.Flatten(), nn.Linear(112, 3)),
        nn.Sequential(nn.Conv2d(2, 2, 3), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(12, 3)),
        nn.Sequential(nn.Conv2d(2, 2, 3), nn.GroupNorm(1, 2, affine=False), nn.Flatten(), nn.Linear(60, 3)),
        nn.Sequential(SAME, nn.ReLU(), SAME, nn.Flatten(), nn.Linear(112, 3)),
        nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.Flatten(2), nn.Flatten(), nn.Linear(112, 3)),
        nn.Sequential(nn.Conv2d(2, 3, (8, 7)), nn.Flatten()),
        Shortcut(),
    ],
    ids=["same", "reflect", "mean", "not scaled", "tied", "flattened twice", "no dense layer", "shortcut"],
)
def test_pictures_that_are_looked_at_in_another_way_run_at_every_step(model):
    engine, batch = Engine(model, classes_of_pictures), rows_for(classes_of_pictures)
    for _ in range(3):
        found, wanted = engine.sum(batch), engine.sum(batch, "record")
        assert not found.by_formula
        torch.testing.assert_close(found.squared_norms, wanted.squared_norms, rtol=1e-4, atol=1e-9)


def test_tied_layers_run_at_every_step():
    model = nn.Sequential(nn.Linear(7, 7), nn.ReLU(), nn.Linear(7, 7))
    model[2].weight = model[0].weight
    engine, batch = Engine(model, classes), rows_for(classes)
    engine.sum(batch)
    assert not engine.sum(batch).by_formula


def test_batches_of_another_form_take_the_general_way():
    engine = Engine(nn.Sequential(nn.Linear(7, 3)), classes)
    inputs, targets = rows_for(classes)
    engine.sum((inputs, targets))
    engine.losses.model.double()
    assert not engine.sum((inputs.double(), targets)).by_formula


def by_shape(model, batch):
    return classes(model, batch) if batch[0].shape[1] == 2 else 3 * classes(model, batch)


def by_type(model, batch):
    return yes_or_no(model, batch) if batch[1].is_floating_point() else 3 * yes_or_no(model, batch)


def test_losses_in_half_precision_are_not_computed_in_full():
    engine, batch = (
        Engine(nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3)), in_half_precision),
        rows_for(classes),
    )
    engine.learn(batch)
    assert not engine.sum(batch).by_formula


@pytest.mark.parametrize(("home", "name"), [(functional, "linear"), (torch.Tensor, "double"), (torch, "cat")])
def test_a_function_in_place_of_pytorchs_would_see_records_together(home, name, monkeypatch):
    engine, batch = Engine(*RECOGNISED["large"]), rows_for(classes)
    engine.learn(batch)
    original = getattr(home, name)
    monkeypatch.setattr(home, name, lambda *given, **named: original(*given, **named))
    with pytest.raises(LossesError, match=f"{name} was replaced by"):
        engine.sum(batch)
    monkeypatch.undo()
    assert engine.sum(batch).by_formula


def test_losses_that_ask_for_shapes_or_types_run_on_batches_of_another_form():
    engine = Engine(nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), by_shape)
    inputs, targets = torch.randn(40, 2, 3), torch.randint(0, 3, (40,))
    engine.learn((inputs, targets))
    assert engine.sum((inputs, targets)).by_formula
    assert not engine.sum((inputs.view(40, 3, 2), targets)).by_formula
    engine = Engine(nn.Linear(6, 1), by_type)
    engine.learn((inputs.flatten(1), targets.float()))
    assert engine.sum((inputs.flatten(1), targets.float())).by_formula
    assert not engine.sum((inputs.flatten(1), targets)).by_formula


def test_a_batch_whose_parts_change_places_is_another_batch():
    engine, batch = Engine(nn.Sequential(nn.Linear(7, 3)), by_name), rows_for(by_name)
    engine.learn(batch)
    turned = dict(reversed(batch.items()))
    found, wanted = engine.sum(turned), engine.sum(turned, "record")
    torch.testing.assert_close(found.squared_norms, wanted.squared_norms, rtol=2e-5, atol=1e-9)


@pytest.mark.parametrize("name", ["linear", "large"])
def test_a_class_that_is_none_adds_nothing_and_all_of_them_are_refused(name):
    engine = Engine(*RECOGNISED[name])
    inputs, targets = rows_for(classes)
    engine.learn((inputs, targets))
    targets[0], targets[1], inputs[2, 3] = 3, -100, torch.nan
    found = engine.sum((inputs, targets))
    assert found.by_formula
    wanted = engine.sum((inputs[3:], targets[3:]), "record")
    for one, value in wanted.sums.items():
        torch.testing.assert_close(found.sums[one].double(), value, rtol=2e-5, atol=1e-6)
    with pytest.raises(LossesError, match="fail on every record"):
        engine.sum((inputs, torch.full_like(targets, 9)))
    ignored = engine.sum((inputs, torch.full_like(targets, -100)))  # these say nothing, which is no fault
    assert not any(value.any() for value in ignored.sums.values())


def test_a_hook_on_a_parameter_is_still_refused():
    engine, batch = Engine(nn.Sequential(nn.Linear(7, 3)), classes), rows_for(classes)
    engine.sum(batch)
    engine.losses.model[0].weight.register_hook(lambda gradient: 2 * gradient)
    with pytest.raises(Exception, match="gradient hook"):
        engine.sum(batch)


def test_losses_that_keep_something_are_refused_before_they_are_taken_for_a_formula():
    kept = []

    def keeping(model, batch):
        kept.append(1)
        return classes(model, batch)

    engine, batch = Engine(nn.Sequential(nn.Linear(7, 3)), keeping), rows_for(classes)
    with pytest.raises(LossesError, match="kept"):
        engine.sum(batch)
    assert not engine.is_known
