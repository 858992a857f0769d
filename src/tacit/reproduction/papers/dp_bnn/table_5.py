"""Paper N, table 5: the methods compared, as measured on the CNN: each property is tried out (1 yes, 0 no) or counted.

"General network structure" is tried with a recurrent network. "Memory" is what predicting needs to keep; "computation"
the time of a private step over that of DP-SGD, alternating with it, the median of several.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from dp_bnn.mnist import BAYESIAN, DRAWS, SIZE, Setting, build_method, build_network, losses, train_privately
from safetensors.torch import load_file
from torch import nn
from torch.nn.functional import cross_entropy

import tacit
from tacit.data import ImageData, load_mnist
from tacit.errors import TacitError
from tacit.reproduction import Work

Builder = Callable[..., Any]


def sgld(network: nn.Module, loss: Any, prior: Any) -> Any:
    return tacit.SGLD(network, loss, prior, 5e-6, SIZE, temperature=0.5)


def bbp(network: nn.Module, loss: Any, prior: Any, descent: Any = None) -> Any:
    return tacit.VariationalInference(network, loss, SIZE, prior, descent=descent or tacit.inference.PlainDescent(0.25))


def dropout(network: nn.Module, loss: Any, prior: Any, descent: Any = None) -> Any:
    return tacit.MCDropout(network, loss, descent or tacit.inference.PlainDescent(0.25), prior, SIZE)


BUILDERS: dict[str, Builder] = {"SGLD": sgld, "BBP": bbp, "MC Dropout": dropout}


def reproduce(work: Work) -> None:
    data, rounds, steps = load_mnist(), 3 if work.quick else 9, 2 if work.quick else 20
    for name in BAYESIAN:
        if not work.wants(f"DP-{name}"):
            continue
        for property_, value in _tried(name, data).items():
            work.measure(f"DP-{name}: {property_}", value)
        work.measure(f"DP-{name}: time of a step over DP-SGD's", _slowness(name, data, rounds, steps))
    work.note("time was measured on whatever else the machine was doing; memory for 100 draws")


def _tried(name: str, data: ImageData) -> dict[str, float]:
    build, drop = BUILDERS[name], 0.05 if name == "MC Dropout" else 0.0
    cnn = build_network("cnn", drop)
    posterior = _train(lambda: build(cnn, losses, tacit.GaussianPrior(0.1)), name, data)
    found = {
        "sampling approach": float(isinstance(posterior, tacit.Draws)),
        "variational inference": float(
            isinstance(posterior, tacit.posteriors.GaussianPosterior | tacit.posteriors.DropoutPosterior)
        ),
        "analytic posterior": float(isinstance(posterior, tacit.posteriors.GaussianPosterior)),
        "general network structure": _works(
            lambda: build(Recurrent(drop), recurrent_losses, tacit.GaussianPrior(0.1)), name, data
        ),
        "general weight prior": _works(
            lambda: build(build_network("cnn", drop), losses, tacit.inference.LaplacePrior(0.1)), name, data
        ),
        "numbers kept per weight": _kept(posterior, sum(p.numel() for p in cnn.parameters())),
    }
    if name != "SGLD":  # a sampler is its own optimizer
        adam = tacit.inference.AdamDescent(1e-3)
        found["general optimizers"] = _works(
            lambda: build(build_network("cnn", drop), losses, tacit.GaussianPrior(0.1), adam), name, data
        )
    return found


class Recurrent(nn.Module):
    """Reads a digit row by row."""

    def __init__(self, drop: float) -> None:
        super().__init__()
        self.cell, self.drop, self.out = nn.Linear(28 + 16, 16), nn.Dropout(drop), nn.Linear(16, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        rows = images.float().flatten(0, -3) / 255
        state = torch.zeros(len(rows), 16)
        for row in rows.unbind(1):
            state = torch.tanh(self.cell(torch.cat([row, state], 1)))
        return self.out(self.drop(state))


def recurrent_losses(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return cross_entropy(model(batch[0]), batch[1].long(), reduction="none")


def _works(method: Callable[[], Any], name: str, data: ImageData) -> float:
    try:
        _train(method, name, data)
    except TacitError:
        return 0.0
    return 1.0


def _train(build: Callable[[], Any], name: str, data: ImageData, steps: int = 2) -> Any:
    noise = None if name == "SGLD" else tacit.GaussianNoise(multiplier=1.3)
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger.jsonl"
        return train_privately(build(), noise, data, ledger, steps, keep=steps).posterior


def _kept(posterior: Any, weights: int) -> float:
    """Numbers per weight in the file that predicting with 100 draws needs; a sampler keeps every draw."""
    with tempfile.TemporaryDirectory() as folder:
        posterior.save(Path(folder) / "posterior.safetensors")
        numbers = sum(value.numel() for value in load_file(Path(folder) / "posterior.safetensors").values())
    draws = DRAWS / len(posterior) if isinstance(posterior, tacit.Draws) else 1.0
    return draws * numbers / weights


def _slowness(name: str, data: ImageData, rounds: int, steps: int) -> float:
    """A private step over one of DP-SGD; the two take turns, so that a busy machine slows both."""
    ratios = []
    for _ in range(rounds):
        one, other = (_seconds(method, data, steps) for method in (name, "SGD"))
        ratios.append(one / other)
    return statistics.median(ratios)


def _seconds(name: str, data: ImageData, steps: int) -> float:
    method, noise = build_method(Setting("cnn", name, prior=True, private=True))
    with tempfile.TemporaryDirectory() as folder:
        start = time.process_time()
        train_privately(method, noise, data, Path(folder) / "ledger.jsonl", steps)
        return time.process_time() - start
