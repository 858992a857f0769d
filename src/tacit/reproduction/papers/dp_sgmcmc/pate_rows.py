"""Confident-GNMax (PATE) for table 1: linear teachers on scattering features, and a student of what they agree upon.

Teachers learn from disjoint parts of the training pictures. They are asked about public pictures, a random part of the
test set whose labels nobody uses; the student is tested on the rest of it. Every run draws its own parts and noise.
The noise is the least whose data-independent bound is within epsilon: the paper quotes Papernot et al. (2018), whose
epsilon depends on the votes (and so may not be published as it is) and whose student is a network with virtual
adversarial training. Ours spreads the answers over a graph of the nearest neighbours among the public pictures, then
fits a linear model to all of them. Features are whitened by statistics of the public pictures, which cost nothing.

The settings were chosen on training pictures: 10,000 of MNIST and 2,500 of SVHN, held out from the teachers, stood in
for the test set. There 94 % of what a teacher of 240 digits says is right, and 200 answers spread over neighbours gave
a better student than 400, whose noise is larger (one run each). On SVHN neighbours mislead (35 instead of 50 %), so
that the student learns from the answers alone; of 25 to 250 teachers 100 did best.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from scattered import Task
from sklearn.semi_supervised import LabelSpreading
from torch import Tensor

import tacit
from tacit.features import Statistics, Whitening
from tacit.pate import assign_teachers, calibrate_confident_gnmax, count_votes

CLASSES, PENALTY = 10, 0.1
Model = Callable[[Tensor], Tensor]  # rows to scores of classes, or to whitened rows


@dataclass(frozen=True)
class Setting:
    """All that is fixed before a run."""

    epsilon: float
    delta: float
    teachers: int
    queries: int
    max_answers: int
    public: int  # of the test pictures
    threshold: float  # share of the teachers
    neighbours: int  # 0: the student learns from the answers alone
    student_penalty: float


@dataclass(frozen=True)
class Outcome:
    """Shares in percent; the last two are measured with labels that the method never sees."""

    accuracy: float  # of the student, on the rest of the test pictures
    epsilon: float
    answered: float
    right: float  # of the answers
    teacher: float  # mean over teachers and queries


def confident_gnmax(setting: Setting, task: Task, folder: Path) -> Outcome:
    order, labels = torch.randperm(len(task.test_rows)), task.test_labels.long()
    public, rest = order[: setting.public], order[setting.public :]
    whiten = whitening(task.test_rows[public])
    rows, truth = whiten(task.test_rows[public]), labels[public[: setting.queries]]
    votes = teachers_votes(setting, task, whiten, rows[: len(truth)])
    answers, epsilon = noisy_answers(setting, votes, folder)
    known = answers >= 0
    student = student_of(setting, rows, answers)
    right = student(whiten(task.test_rows[rest])).argmax(1) == labels[rest]
    return Outcome(
        percent(right), epsilon, int(known.sum()), percent(answers[known] == truth[known]), percent(votes == truth)
    )


def teachers_votes(setting: Setting, task: Task, whiten: Model, asked: Tensor) -> Tensor:
    """[teachers, queries]: what each teacher, who saw its own part alone, says."""
    labels = task.train_labels.long()
    parts = [torch.from_numpy(part) for part in assign_teachers(len(labels), setting.teachers)]
    models = (linear(whiten(task.train_rows[part]), labels[part], PENALTY) for part in parts)
    return torch.stack([model(asked).argmax(1) for model in models])


def noisy_answers(setting: Setting, votes: Tensor, folder: Path) -> tuple[Tensor, float]:
    """Labels, -1 where there is none, and what they cost."""
    mechanism = calibrate_confident_gnmax(
        setting.epsilon, setting.delta, queries=votes.shape[1], max_answers=setting.max_answers,
        threshold=setting.threshold * setting.teachers,
    )  # fmt: skip
    with tacit.ledger.LedgerFile(folder / "ledger.jsonl", tacit.ledger.LedgerHeader(dataset="pictures")) as ledger:
        answers = mechanism.answer(count_votes(votes.numpy(), CLASSES), ledger)
        [guarantee] = tacit.guarantees(ledger.ledger, setting.delta, only=["pld"])
    return torch.from_numpy(answers.labels), guarantee.epsilon


def student_of(setting: Setting, rows: Tensor, answers: Tensor) -> Model:
    known = torch.nonzero(answers >= 0)[:, 0]
    if not setting.neighbours:
        return linear(rows[known], answers[known], setting.student_penalty)
    given = torch.full((len(rows),), -1)
    given[known] = answers[known]
    graph = LabelSpreading(kernel="knn", n_neighbors=setting.neighbours, alpha=0.9, max_iter=200)
    spread = graph.fit(rows.numpy(), given.numpy()).transduction_
    return linear(rows, torch.from_numpy(spread), setting.student_penalty)


def whitening(public: Tensor) -> Model:
    wide = public.transpose(0, 1).flatten(1)
    found = Whitening.of(Statistics(public.mean(0), wide @ wide.T / len(public)), ridge=1.0)
    return lambda rows: found.apply_(rows.clone()).flatten(1)


def linear(rows: Tensor, labels: Tensor, penalty: float) -> Model:
    """Least squares to one-hot labels, with a penalty on the weights: W = X'(X X' + penalty)^-1 Y, or the other way."""
    mean = torch.eye(CLASSES)[labels].sum(0) / max(1, len(rows))  # of no rows at all, a constant
    targets = torch.eye(CLASSES)[labels] - mean
    if len(rows) < rows.shape[1]:
        weights = rows.T @ torch.linalg.solve(rows @ rows.T + penalty * torch.eye(len(rows)), targets)
    else:
        weights = torch.linalg.solve(rows.T @ rows + penalty * torch.eye(rows.shape[1]), rows.T @ targets)
    return lambda asked: asked @ weights + mean


def percent(right: Tensor) -> float:
    return 100 * float(right.float().mean())
