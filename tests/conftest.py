"""Shared by all tests: a tiny model, its data, and fixed global seeds so that a failure can be seen again."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tacit.commands.app import run
from tacit.ledger import GaussianSumQuery, PoissonSample

if "PYTEST_XDIST_WORKER" in os.environ:  # several processes whose threads wait for each other are slower than one each
    torch.set_num_threads(1)

settings.register_profile("tacit", deadline=None)  # no test asserts wall-clock time
settings.load_profile("tacit")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def event() -> PoissonSample:
    return PoissonSample(probability=0.01, queries=(GaussianSumQuery(1.0, 1.1),))


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


@pytest.fixture
def data() -> tuple[Tensor, Tensor]:
    return torch.randn(40, 5), torch.randint(0, 3, (40,))


def classify(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1], reduction="none")


@pytest.fixture
def data_folder() -> Path:
    folder = os.environ.get("TACIT_DATA")
    if folder is None or not Path(folder).is_dir():
        pytest.skip("TACIT_DATA does not name the folder of real data sets")
    return Path(folder)


@pytest.fixture
def tacit(capsys):
    """The command line as a function: exit code, standard output and standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def stopped(monkeypatch):
    """The next run gets a Ctrl-C at its 37th step."""
    from tacit.training import chains

    advance, count = chains.Chains.advance, [0]

    def stop(self, gradient):
        count[0] += 1
        advance(self, gradient)
        if count[0] == 37:
            raise KeyboardInterrupt

    monkeypatch.setattr(chains.Chains, "advance", stop)
