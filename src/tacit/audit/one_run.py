"""Check 5a: one run with many canaries (Steinke, Nasr and Jagielski 2023). Weak: finds gross faults only.

Each of m canaries takes part or not by a coin of the auditor's. After the run, all releases together give each canary a
score; the highest scores are guessed to have been in, the lowest out, the rest is left open. Under (epsilon, delta)
privacy the number of right guesses among r is hardly larger than binomial with e^epsilon / (1 + e^epsilon); the largest
epsilon that so many right guesses rule out is a lower bound.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binom

from tacit.audit.canary import CONFIDENCE, claimed_epsilon, loudness
from tacit.audit.finding import Finding, turns_errors_into_findings
from tacit.audit.subject import Subject
from tacit.ledger import Ledger
from tacit.training import DataSource

WEAK = ("finds gross faults only: a run tells much less than its worst case",)
_GUESSES = 0.1  # of the canaries, on either side


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
    rows = (loudness(subject) * torch.eye(width, dtype=torch.float64))[torch.from_numpy(inside)]
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
    """The largest epsilon under which so many right guesses have at most probability ``doubt``; by bisection.

    Example:
        >>> round(lowest_epsilon(100, 100, 100, 0.0, 0.05), 3)
        3.493
    """
    low, high = 0.0, 20.0
    if _at_most(canaries, guesses, right, 0.0, delta) > doubt:
        return 0.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(canaries, guesses, right, middle, delta) <= doubt else (low, middle)
    return low


def _at_most(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """P(at least so many right guesses) <= binomial tail + 2 m delta max_i P(right - i <= X < right) / i."""
    q = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, q))
    masses = binom.pmf(np.arange(right - 1, -1, -1), guesses, q).cumsum()
    worst = float((masses / np.arange(1, right + 1)).max()) if right else 0.0
    return min(1.0, tail + 2 * canaries * delta * worst)
