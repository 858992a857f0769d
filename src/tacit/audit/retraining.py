"""Check 5b: train small models again and again, with a canary and without. Weak: finds gross faults only.

The attacker sees the final parameters alone and calls "in" when the canary's loss is low. A threshold is chosen on half
of the models; on the other half, bounds of the two error rates (Clopper and Pearson) bound epsilon from below:
epsilon >= log((1 - delta - false negatives) / false positives).
"""

import math
import tempfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import beta
from torch import Tensor, nn

from tacit.audit.canary import CONFIDENCE, claimed_epsilon
from tacit.audit.finding import Finding, turns_errors_into_findings
from tacit.audit.one_run import WEAK
from tacit.audit.recount import descent
from tacit.audit.replay import classify
from tacit.ledger import Ledger
from tacit.losses import ModelLosses
from tacit.mechanisms import ClipRecords, GaussianNoise
from tacit.sampling import PoissonSampling
from tacit.training import TrainingPlan, train

_SIZE, _STEPS, _RATE, _MULTIPLIER = 20, 20, 0.5, 1.0


@turns_errors_into_findings("retraining")
def check_retraining(models: int = 400, delta: float = 1e-5) -> Finding:
    """``models`` runs, half of them with the canary."""
    losses = np.array([[_trained(canary) for canary in (False, True)] for _ in range(models // 2)])
    lower = _bound(losses[: len(losses) // 2], losses[len(losses) // 2 :], delta)
    claim = claimed_epsilon(_planned(), delta)
    assert claim is not None
    broke = (f"at least epsilon {lower:.4f} was leaked, {claim:.4f} is claimed",) if lower > claim else ()
    measured = f"epsilon at least {lower:.3f}, {lower / claim:.0%} of {claim:.3f}"
    return Finding("retraining", f"{models} small models", models, broke, measured, WEAK, weak=True)


def _plan(folder: str) -> TrainingPlan:
    sampling = PoissonSampling(_RATE, expected_size=_RATE * _SIZE)
    noise = GaussianNoise(multiplier=_MULTIPLIER)
    return TrainingPlan(sampling, ClipRecords(1.0), noise, _STEPS, Path(folder) / "ledger.jsonl")


def _planned() -> Ledger:
    with tempfile.TemporaryDirectory() as folder:
        return train(descent(_model()), _data(False), _plan(folder)).ledger


def _model() -> ModelLosses:
    model = nn.Linear(4, 2)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return ModelLosses(model, classify)


def _data(canary: bool) -> tuple[Tensor, Tensor]:
    """Plain records that say nothing about the direction in which the canary lies."""
    generator = torch.Generator().manual_seed(9)
    inputs, labels = torch.randn(_SIZE, 4, generator=generator), torch.arange(_SIZE) % 2
    inputs[:, 0] = 0.0
    if not canary:
        return inputs, labels
    return torch.cat([inputs, torch.tensor([[50.0, 0.0, 0.0, 0.0]])]), torch.cat([labels, torch.tensor([1])])


def _trained(canary: bool) -> float:
    losses = _model()
    with tempfile.TemporaryDirectory() as folder:
        run = train(descent(losses), _data(canary), _plan(folder))
    record = _data(True)
    with torch.no_grad():
        return float(losses(run.state.params, (record[0][-1:], record[1][-1:])))


def _bound(seen: NDArray[np.float64], fresh: NDArray[np.float64], delta: float) -> float:
    """The threshold that looks best on ``seen``, judged on ``fresh``; [models, (without, with)]."""
    thresholds = np.quantile(seen, np.linspace(0.02, 0.98, 49))
    best = max(thresholds, key=lambda at: float((seen[:, 1] <= at).mean() - (seen[:, 0] <= at).mean()))
    low, high = fresh[:, 1] <= best, fresh[:, 0] <= best
    bounds = [_from_errors(int((~low).sum()), int(high.sum()), len(fresh), delta)]
    bounds.append(_from_errors(int(high.sum()), int((~low).sum()), len(fresh), delta))
    return max(0.0, *bounds)


def _from_errors(missed: int, blamed: int, count: int, delta: float) -> float:
    gain = 1 - delta - _most(missed, count)
    return math.log(gain / _most(blamed, count)) if gain > 0 else 0.0


def _most(errors: int, count: int) -> float:
    """The largest error rate that so few errors allow; four such bounds share the doubt."""
    return float(beta.ppf(1 - (1 - CONFIDENCE) / 4, errors + 1, count - errors)) if errors < count else 1.0
