"""Checks 5a and 5b: what an attacker learns from real runs. Weak: they find gross faults only.

One run with many canaries (Steinke, Nasr and Jagielski 2023). Each of m canaries takes part or not by a coin of the
auditor's. After the run, all releases together give each canary a score; the highest scores are guessed to have been
in, the lowest out, the rest is left open. Under (epsilon, delta) privacy the number of right guesses among r is hardly
larger than binomial with e^epsilon / (1 + e^epsilon); the largest epsilon that so many right guesses rule out is a
lower bound.

Retraining: small models are trained again and again, with a canary and without. The attacker sees the final parameters
alone and calls "in" when the canary's loss is low. A threshold is chosen on half of the models; on the other half,
bounds of the two error rates (Clopper and Pearson) bound epsilon from below:
epsilon >= log((1 - delta - false negatives) / false positives).
"""

import math
import tempfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import beta, binom
from torch import Tensor, nn

from tacit.accountants.search import root
from tacit.audit.canary import CONFIDENCE, canary_length, claimed_epsilon
from tacit.audit.finding import Finding, turns_errors_into_findings
from tacit.audit.recount import descent
from tacit.audit.replay import classify
from tacit.audit.subject import Subject
from tacit.ledger import Ledger
from tacit.losses import ModelLosses
from tacit.mechanisms import ClipRecords, GaussianNoise
from tacit.sampling import PoissonSampling
from tacit.training import DataSource, TrainingPlan, train

WEAK = ("finds gross faults only: a run tells much less than its worst case",)
_GUESSES = 0.1  # of the canaries, on either side
_LARGEST = 20.0  # epsilon that guesses may show
_SIZE, _STEPS, _RATE, _MULTIPLIER = 20, 20, 0.5, 1.0


@turns_errors_into_findings("one run")
def check_one_run(subject: Subject, ledger: Ledger, delta: float, canaries: int = 1000) -> Finding:
    """One run of as many steps as the ledger has (at most 2,000)."""
    claim, steps = claimed_epsilon(ledger, delta), min(ledger.steps, 2000)
    if claim is None or subject.unit.unit != "record" or subject.sampling.neighbours == "replace_one" or not steps:
        reason = "needs records that may be added or removed, and an accountant that reads the ledger"
        return Finding("one run", "", 0, skipped=reason, weak=True)
    inside = np.random.default_rng().random(canaries) < 0.5
    scores = _run_scores(subject, steps, inside)
    right, guesses = right_guesses(scores, inside, max(1, int(_GUESSES * canaries)))
    lower = lowest_epsilon(canaries, guesses, right, delta, 1 - CONFIDENCE)
    broke = (f"at least epsilon {lower:.4f} was leaked, {claim:.4f} is claimed",) if lower > claim else ()
    measured = f"{right} of {guesses} guesses right: epsilon at least {lower:.3f}, {lower / claim:.0%} of {claim:.3f}"
    return Finding("one run", f"{canaries} canaries, {steps} steps", canaries, broke, measured, WEAK, weak=True)


def _run_scores(subject: Subject, steps: int, inside: NDArray[np.bool_]) -> torch.Tensor:
    width = len(inside)
    rows = (canary_length(subject) * torch.eye(width, dtype=torch.float64))[torch.from_numpy(inside)]
    scores = torch.zeros(width, dtype=torch.float64)
    with subject.engine(width, torch.float64, steps) as audited:
        for sample in audited.private.samples(DataSource(rows), steps):
            for value in audited.private.release(sample, audited.losses.params).values():
                scores += value.flatten()
    return scores


def right_guesses(scores: torch.Tensor, inside: NDArray[np.bool_], each: int) -> tuple[int, int]:
    """How many of the ``each`` highest scores were in and of the lowest out, among how many guesses."""
    order = scores.argsort().numpy()
    return int(inside[order[-each:]].sum() + (~inside[order[:each]]).sum()), 2 * each


def lowest_epsilon(canaries: int, guesses: int, right: int, delta: float, doubt: float) -> float:
    """The largest epsilon under which so many right guesses have at most probability ``doubt``; 20 at most.

    Example:
        >>> round(lowest_epsilon(100, 100, 100, 0.0, 0.05), 3)
        3.493
    """

    def too_likely(epsilon: float) -> float:
        return _at_most(canaries, guesses, right, epsilon, delta) - doubt

    if too_likely(0.0) > 0:
        return 0.0
    return root(too_likely, 0.0, _LARGEST) if too_likely(_LARGEST) > 0 else _LARGEST


def _at_most(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """P(at least so many right guesses) <= binomial tail + 2 m delta max_i P(right - i <= X < right) / i."""
    q = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, q))
    masses = binom.pmf(np.arange(right - 1, -1, -1), guesses, q).cumsum()
    worst = float((masses / np.arange(1, right + 1)).max()) if right else 0.0
    return min(1.0, tail + 2 * canaries * delta * worst)


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
