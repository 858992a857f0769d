"""The contenders: each turns a workload into a function that makes one step. One that is not installed says so."""

import atexit
import copy
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from workloads import Batch, losses

import tacit.training  # all of it now: what imports take is not what a step takes
from tacit.gradients import clipped_sum, guard_of
from tacit.losses import ModelLosses, count_records, map_tensors, take_records
from tacit.mechanisms import SLACK, ClipRecords, GaussianNoise, build_mechanism

Step = Callable[[], None]
_DATA = 4  # batches in the data set


class NotRunnableError(Exception):
    """The contender is missing, or cannot run this workload."""


def plain(model: nn.Module, batch: Any, losses: Any = losses) -> Step:
    """A loop that gathers random rows of tensors, without a loader."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    records, data = count_records(batch), _repeated(batch)

    def step() -> None:
        rows = torch.randint(0, _DATA * records, (records,))
        optimizer.zero_grad()
        losses(model, take_records(data, rows)).mean().backward()
        optimizer.step()

    return step


def _repeated(batch: Any) -> Any:
    return map_tensors(lambda part: part.repeat(_DATA, *[1] * (part.dim() - 1)), batch)


def tacit_loop(model: nn.Module, batch: Any, losses: Any = losses, *, poisson: bool = True) -> Step:
    """What users run: samples drawn, gathered and charged on disk, backward, their own optimizer."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    records, data = count_records(batch), _repeated(batch)
    folder = tempfile.mkdtemp()
    sampling: Any = tacit.PoissonSampling(probability=1 / _DATA, expected_size=records)
    if not poisson:
        sampling = tacit.FixedSizeSampling(size=records, population=_DATA * records)
    private = tacit.PrivateGradient(
        model,
        losses,
        sampling,
        tacit.ClipRecords(1.0),
        tacit.GaussianNoise(multiplier=1.0),
        ledger=f"{folder}/ledger.jsonl",
    )
    samples = private.samples(data, steps=1_000_000)

    def end() -> None:
        private.close()  # which still writes to it
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)

    def step() -> None:
        optimizer.zero_grad()
        private.backward(next(samples))
        optimizer.step()

    return step


def _clipped_sum(strategy: Any = "auto") -> Callable[[nn.Module, Batch], Step]:
    """The inner sum alone, without drawing, ledger and noise."""

    def build(model: nn.Module, batch: Batch) -> Step:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        of_model = ModelLosses(model, losses)
        params, records = of_model.params, len(batch[1])
        shapes = {name: value.shape for name, value in params.items()}
        mechanism = build_mechanism(ClipRecords(1.0), GaussianNoise(multiplier=1.0), shapes, slack=SLACK)
        more = {"chunk": records, "strategy": strategy, "guard": guard_of(of_model)}

        def step() -> None:
            sums = clipped_sum(of_model, params, batch, mechanism, **more).sums
            for name, parameter in params.items():
                parameter.grad = sums[name].to(parameter.dtype)
            optimizer.step()

        return step

    return build


def _opacus(mode: str) -> Callable[[nn.Module, Batch], Step]:
    """Opacus' own loop: its engine, its Poisson loader, epoch after epoch."""

    def build(model: nn.Module, batch: Batch) -> Step:
        try:
            from opacus import PrivacyEngine
            from opacus.validators import ModuleValidator
        except ImportError as error:
            raise NotRunnableError("missing") from error
        model = ModuleValidator.fix(model)  # an LSTM becomes one of its own
        sgd = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-3)
        loader = DataLoader(TensorDataset(*_repeated(batch)), batch_size=len(batch[1]))
        found = PrivacyEngine().make_private(
            module=model, optimizer=sgd, data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0,
            criterion=nn.CrossEntropyLoss(), grad_sample_mode=mode,
        )  # fmt: skip
        wrapped, optimizer, batches = found[0], found[1], _forever(found[-1])
        criterion = found[2] if mode == "ghost" else nn.CrossEntropyLoss()

        def step() -> None:
            inputs, targets = next(batches)
            optimizer.zero_grad()
            criterion(wrapped(inputs), targets).backward()
            optimizer.step()

        return step

    return build


def _forever(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def _vmap(compiled: bool) -> Callable[[nn.Module, Batch], Step]:
    """What one writes by hand with torch.func, with ordinary noise and batches of one size."""

    def build(model: nn.Module, batch: Batch) -> Step:
        params = {name: value for name, value in model.named_parameters() if value.requires_grad}

        def loss_of_one(params: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            output = torch.func.functional_call(model, params, (x[None],))
            return nn.functional.cross_entropy(output, y[None])

        def clipped(params: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
            rows = torch.func.vmap(torch.func.grad(loss_of_one), in_dims=(None, 0, 0))(params, x, y)
            norms = torch.stack([row.flatten(1).norm(dim=1) for row in rows.values()], 1).norm(dim=1)
            factors = (1.0 / norms).clamp(max=1.0)
            return {name: torch.einsum("b,b...->...", factors, row) for name, row in rows.items()}

        optimizer = torch.optim.SGD(params.values(), lr=1e-3)
        run = torch.compile(clipped) if compiled else clipped
        records, data = len(batch[1]), _repeated(batch)

        def step() -> None:
            rows = torch.randint(0, _DATA * records, (records,))
            found = run({name: value.detach() for name, value in params.items()}, *take_records(data, rows))
            for name, total in found.items():
                params[name].grad = (total + torch.randn_like(total)) / records
            optimizer.step()

        return step

    return build


def jax_privacy(model: nn.Module, batch: Batch) -> Step:
    """The same model written in JAX, on a batch that stays; the ratio is to PyTorch's plain step like all others."""
    try:
        from jax_step import build_step
    except ImportError as error:
        raise NotRunnableError("missing") from error
    return build_step(model, batch)


CONTENDERS: dict[str, Callable[[nn.Module, Batch], Step]] = {
    "plain": plain,
    "tacit": tacit_loop,
    "tacit, samples of one size": partial(tacit_loop, poisson=False),  # as many rows as the plain step: for memory
    "tacit, clipped sum only": _clipped_sum(),
    "Opacus hooks": _opacus("hooks"),
    "Opacus ExpandedWeights": _opacus("ew"),
    "Opacus ghost": _opacus("ghost"),
    "vmap by hand": _vmap(False),
    "compiled vmap": _vmap(True),
    "JAX-Privacy": jax_privacy,
}
VARYING = {"tacit", "Opacus hooks", "Opacus ExpandedWeights", "Opacus ghost"}  # whose samples differ in size
# Per-record gradients of the mlp take gigabytes and a minute a step: they would only keep the others waiting.
TOO_LARGE = {("mlp", name) for name in ("Opacus hooks", "Opacus ExpandedWeights", "vmap by hand")}
TOO_LARGE |= {("mlp", "JAX-Privacy")}
TOO_LARGE |= {(load, "compiled vmap") for load in ("mlp", "transformer", "vgg", "lora", "resnet18", "lstm")}
NOT_WRITTEN = {(load, "JAX-Privacy") for load in ("lora", "resnet18", "lstm")}


def build(name: str, workload: str, model: nn.Module, batch: Batch) -> Step:
    if (workload, name) in TOO_LARGE:
        raise NotRunnableError("left out")
    if (workload, name) in NOT_WRITTEN:
        raise NotRunnableError("not written")
    return CONTENDERS[name](copy.deepcopy(model), batch)
