"""F17: every iterate is charged, so that keeping more of them costs nothing more and nothing less."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

import tacit
from reliability.figures import Figure, tries
from tacit.accountants import get_accountant
from tacit.audit.replay import classify


def prove(effort: float) -> Iterator[Figure]:
    kept = [1, 2, 5, 10, 20][: tries(5, effort, least=2)]
    found = {count: _epsilon(count) for count in kept}
    differ = sum(epsilon != found[1] for epsilon in found.values())
    reached = f"epsilon {found[1]:.6f}"
    yield Figure("F17", "epsilon of runs that keep 1 to 20 draws", len(kept), differ, reached, "all the same")


def _epsilon(keep: int) -> float:
    data = torch.randn(50, 3), torch.randint(0, 2, (50,))
    model = nn.Linear(3, 2)
    method = tacit.SGLD(model, classify, tacit.GaussianPrior(1.0), step_size=1e-3, dataset_size=50, temperature=None)
    with tempfile.TemporaryDirectory() as folder:
        plan = tacit.TrainingPlan(
            tacit.PoissonSampling(0.2, 10), tacit.ClipRecords(1.0), tacit.GaussianNoise(multiplier=1.5), 20,
            Path(folder) / "ledger.jsonl",
        )  # fmt: skip
        run = tacit.train(method, data, plan, keep_last=keep)
    return get_accountant("pld").guarantee(run.ledger, delta=1e-5).epsilon
