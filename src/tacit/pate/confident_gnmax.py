"""Confident-GNMax (Papernot et al. 2018; Li et al. 2019, section 4.2): answer only where the teachers clearly agree.

For each public input: if max_j n_j + N(0, sigma_1^2) >= threshold, release argmax_j (n_j + N(0, sigma_2^2)).

A record sits with one teacher, so that one record more or less changes at most one vote of every query: the largest
count moves by at most 1, the vector of counts by at most sqrt(2). Both steps are Gaussian sums over all records, and
the ledger charges them as such, whatever the votes were: the *data-independent* bound. How many queries are answered
follows from the data, so the charge is for the most that may be, and the mechanism stops there. Which query is answered
is adaptive; Gaussian charges without sampling add up even then (Smith and Thakurta 2022).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.accountants import BudgetGate, gaussian_mu, get_accountant
from tacit.accountants.search import smallest_within
from tacit.errors import InputError, check_count, check_positive
from tacit.ledger import Charge, GaussianSumQuery, Ledger, LedgerFile, PoissonSample
from tacit.randomness import Randomness

UNANSWERED = -1


@dataclass(frozen=True, slots=True)
class Answers:
    """What left: a label for each query, or -1 where the teachers did not agree enough or no answers were left."""

    labels: NDArray[np.int64]

    @property
    def answered(self) -> NDArray[np.bool_]:
        return np.asarray(self.labels != UNANSWERED)


@dataclass(frozen=True, slots=True)
class ConfidentGNMax:
    """The mechanism; every field is public.

    Args:
        threshold: how many votes the noisy winner needs.
        threshold_noise: sigma_1, on the winner's count.
        vote_noise: sigma_2, on every count of an answered query.
        max_answers: after so many answers nothing more is answered; all of them are charged.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from tacit.ledger import LedgerHeader, read_ledger
        >>> mechanism = ConfidentGNMax(threshold=150, threshold_noise=50, vote_noise=20, max_answers=10)
        >>> votes = np.array([[240, 5, 5], [90, 80, 80]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with LedgerFile(f"{folder}/ledger.jsonl", LedgerHeader(dataset="votes")) as ledger:
        ...         answers = mechanism.answer(votes, ledger)
        ...     read_ledger(folder).steps
        4
    """

    threshold: float
    threshold_noise: float
    vote_noise: float
    max_answers: int

    def __post_init__(self) -> None:
        for name in ("threshold_noise", "vote_noise"):
            check_positive(name, getattr(self, name))
        if not math.isfinite(self.threshold):
            raise InputError(f"threshold must be a number of votes, found {self.threshold!r}")
        check_count("max_answers", self.max_answers)

    def charges(self, queries: int) -> list[Charge]:
        """What answering so many queries costs, whatever the votes are."""
        check_count("queries", queries)
        ask = PoissonSample(1.0, (GaussianSumQuery(1.0, self.threshold_noise),))
        tell = PoissonSample(1.0, (GaussianSumQuery(math.sqrt(2), self.vote_noise),))
        return [Charge(ask, queries), Charge(tell, min(self.max_answers, queries))]

    def answer(
        self,
        votes: ArrayLike,
        ledger: LedgerFile,
        *,
        gate: BudgetGate | None = None,
        randomness: Randomness | None = None,
    ) -> Answers:
        """Answer queries in their order; everything is charged before a vote is looked at.

        Args:
            votes: counts [queries, classes], private.
            ledger: the ledger of the teachers' data.
            gate: refuses if a budget would be exceeded.
        """
        counts, source = _counts(votes), randomness or Randomness()
        if ledger.ledger.header.randomness != source.kind:
            found = ledger.ledger.header.randomness
            raise InputError(f"the ledger was opened for {found} randomness, found {source.kind}")
        charges = self.charges(len(counts))
        if gate is not None:
            gate(ledger.ledger, charges)
        ledger.plan(sum(charge.steps for charge in charges))
        ledger.reserve(charges)
        return Answers(self._labels(counts, source))

    def _labels(self, counts: NDArray[np.float64], source: Randomness) -> NDArray[np.int64]:
        queries, classes = counts.shape
        noisy = counts.max(axis=1) + self.threshold_noise * source.normals(queries).numpy()
        passed = np.flatnonzero(noisy >= self.threshold)[: self.max_answers]
        noise = self.vote_noise * source.normals(len(passed) * classes).numpy().reshape(len(passed), classes)
        labels = np.full(queries, UNANSWERED)
        labels[passed] = (counts[passed] + noise).argmax(axis=1)
        return labels


def calibrate_confident_gnmax(
    epsilon: float, delta: float, *, queries: int, max_answers: int, threshold: float, noise_ratio: float = 2.0
) -> ConfidentGNMax:
    """The least noise with which ``queries`` cost at most (epsilon, delta), whatever the votes are.

    Args:
        threshold: how many votes the noisy winner needs.
        noise_ratio: sigma_1 / sigma_2, the noise of the threshold over that of the votes.

    Example:
        >>> found = calibrate_confident_gnmax(2.0, 1e-5, queries=300, max_answers=200, threshold=150)
        >>> round(found.vote_noise, 1)
        43.5
    """
    check_positive("epsilon", epsilon)
    check_positive("noise_ratio", noise_ratio)
    pld = get_accountant("pld")

    def build(noise: float) -> ConfidentGNMax:
        return ConfidentGNMax(threshold, noise_ratio * noise, noise, max_answers)

    def cost(noise: float) -> float:
        return pld.guarantee(Ledger.planned(build(noise).charges(queries)), delta=delta).epsilon

    answers = build(1.0).charges(queries)[1].steps
    mu = gaussian_mu(epsilon, delta)  # full-batch Gaussians add up: mu^2 = queries / sigma_1^2 + 2 answers / sigma_2^2
    start = math.sqrt(queries / noise_ratio**2 + 2 * answers) / mu
    return build(smallest_within(cost, epsilon, "vote_noise", start))


def _counts(votes: ArrayLike) -> NDArray[np.float64]:
    counts = np.asarray(votes, dtype=float)
    if counts.ndim != 2 or counts.shape[0] == 0 or counts.shape[1] < 2:
        raise InputError(f"votes must be counts [queries, classes] of two classes or more, found {list(counts.shape)}")
    if not np.isfinite(counts).all() or (counts < 0).any():
        raise InputError("votes must be counts: finite and at least 0")
    return counts
