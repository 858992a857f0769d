"""A search for settings on a table: a secret, random number of trials, of which only the best is released.

The number of trials and what each of them tries are drawn first, from chance alone, and kept in a private file. Then
the ledger is charged once for the whole search, whatever the number. A trial trains a candidate and scores it on the
very records that it was trained on: a private model cannot have learned them by heart, so none need be held out. The
score is a noisy sum to which no unit adds more than 1, a part of what a trial costs.

A search that is stopped goes on with the same draws and its best trial so far. A trial that was cut off is run again:
nothing of it has left the private files, so that what is released comes from the law that was charged for. Two things
are left out on purpose: a progress bar and the seconds that it took. Whoever watches the machine can still count.
"""

import os
from dataclasses import asdict, dataclass, replace

import numpy as np
from scipy.special import pdtr

from tacit.accountants.budget import charge_within
from tacit.errors import InputError, LedgerError
from tacit.ledger import Charge, Ledger, LedgerFile, NegativeBinomialTrials, PoissonTrials, read_ledger
from tacit.posteriors import load_posterior
from tacit.randomness import Randomness
from tacit.runs.fit import Fitted, learn, training_plan
from tacit.runs.folder import RunFolder
from tacit.runs.predictions import Predictor
from tacit.runs.problem import Problem
from tacit.runs.quality.hold_out import weights_of
from tacit.storage.json_files import read_json, write_json
from tacit.tables import Encoded, target_scale
from tacit.training import TrainingPlan
from tacit.types import Floats

_MOST_TRIALS = 10**6  # trials; rounding must not make the sum of chances fall short of 1 for ever
_CUT = 0.5  # of half a number's declared range: errors beyond count like errors there
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Chosen:
    """The best trial: its settings, what it learned, and its noisy score, a mean over the declared units."""

    problem: Problem
    fitted: Fitted
    score: float


@dataclass(frozen=True, slots=True)
class _Progress:
    """How far a search is. Private: it tells the number of trials.

    Args:
        draws: which candidate each trial has.
        charged: whether the ledger is known to have been charged.
        done: how many trials are finished.
        best: the number of the best of them; its posterior lies beside.
    """

    draws: tuple[int, ...]
    charged: bool = False
    done: int = 0
    best: int | None = None
    score: float | None = None
    temperature: float | None = None
    path: str | None = None

    def write(self, folder: RunFolder) -> None:
        write_json(folder.tuning, {"format": FORMAT} | asdict(self))
        folder.tuning.chmod(0o600)


def search(
    problem: Problem, data: Encoded, plan: TrainingPlan, folder: RunFolder, randomness: Randomness, *, resume: bool
) -> Chosen:
    """Run all trials and keep the best; charged before the first record is touched."""
    assert problem.search is not None
    if resume:
        now = _read(folder)
    else:
        now = _Progress(draw_candidates(problem.search.number, len(problem.search.candidates), randomness))
        now.write(folder)
    if not now.charged:
        _charge(problem, plan, randomness)
        now = replace(now, charged=True)
        now.write(folder)
    while now.done < len(now.draws):
        now = _after_trial(problem, data, folder, randomness, now)
    assert now.best is not None
    assert now.score is not None
    posterior = load_posterior(folder.best_trial(now.best))
    best = problem.trial(problem.search.candidates[now.draws[now.best]])
    fitted = Fitted(posterior, read_ledger(plan.ledger), best.recipe.steps, now.temperature, now.path)
    return Chosen(best, fitted, now.score / problem.units)


def draw_candidates(
    number: PoissonTrials | NegativeBinomialTrials, candidates: int, randomness: Randomness
) -> tuple[int, ...]:
    """The candidate of each trial, as many as the distribution says: from chance alone."""
    count = drawn_number(number, float(_units(randomness, 1)[0]))
    return tuple(np.minimum((_units(randomness, count) * candidates).astype(int), candidates - 1).tolist())


def drawn_number(number: PoissonTrials | NegativeBinomialTrials, unit: float) -> int:
    """The number of trials at a point of its distribution; at least 1.

    Example:
        >>> [drawn_number(NegativeBinomialTrials(1.0, 0.5), unit) for unit in (0.4, 0.6, 0.9)]
        [1, 2, 4]
    """
    match number:
        case PoissonTrials(mean=mean):
            return max(1, _poisson_quantile(mean, unit))
        case NegativeBinomialTrials(eta=eta, gamma=gamma):
            return _negative_binomial_quantile(eta, gamma, unit)


def _poisson_quantile(mean: float, unit: float) -> int:
    count = 0
    while pdtr(count, mean) <= unit and count < _MOST_TRIALS:
        count += 1
    return count


def _negative_binomial_quantile(eta: float, gamma: float, unit: float) -> int:
    """Chances follow p(k+1) = p(k) (1 - gamma) (k + eta) / (k + 1); p(1) is the derivative of E[x^K] at 0."""
    chance = (1 - gamma) / -np.log(gamma) if abs(eta) < 1e-9 else eta * (1 - gamma) / (gamma**-eta - 1)
    count, below = 1, chance
    while below <= unit and count < _MOST_TRIALS:
        chance *= (1 - gamma) * (count + eta) / (count + 1)
        count += 1
        below += chance
    return count


def _units(randomness: Randomness, count: int) -> Floats:
    """Numbers in [0, 1) of 53 bits."""
    return np.asarray((randomness.words("sampling", count) >> np.uint64(11)) * 2.0**-53)


def _read(folder: RunFolder) -> _Progress:
    found = read_json(folder.tuning, FORMAT)
    if found is None:
        raise InputError(
            f"{folder.tuning} is gone, and with it how many trials were drawn; to draw again would be another search, "
            "charged anew: name another folder with --out"
        )
    facts = {name: found.content.get(name) for name in _Progress.__slots__}
    try:
        return _Progress(**facts | {"draws": tuple(facts["draws"])})
    except TypeError as error:
        raise InputError(f"{folder.tuning} is damaged: {error}") from error


def _charge(problem: Problem, plan: TrainingPlan, randomness: Randomness) -> None:
    """Once for all trials, with what the run releases besides; a ledger of its own may know of it already."""
    settings = problem.recipe
    assert settings.search is not None
    charges = [Charge(settings.search, 1), *settings.beside]
    with LedgerFile(plan.ledger, plan.header(randomness)) as file:
        if not problem.shared and settings.search in file.ledger.merged():
            return
        charge_within(plan.budget, file, charges, planned=len(charges))


def _after_trial(
    problem: Problem, data: Encoded, folder: RunFolder, randomness: Randomness, now: _Progress
) -> _Progress:
    """One trial more; the better one is on disk before the file that names it."""
    assert problem.search is not None
    folder.forget_search(folder.tuning, *(() if now.best is None else (folder.best_trial(now.best),)))
    one = problem.trial(problem.search.candidates[now.draws[now.done]])
    folder.trial.mkdir(mode=0o700)
    fitted = learn(one, data, training_plan(one, folder.trial / "ledger.jsonl"), randomness)
    _check_paid(problem, fitted.ledger)
    score = trial_score(Predictor(one, fitted.posterior), data, randomness)
    if now.score is not None and score <= now.score:
        now = replace(now, done=now.done + 1)
    else:
        place = folder.best_trial(now.done)
        fitted.posterior.save(place)
        os.chmod(place, 0o600)
        now = replace(now, done=now.done + 1, best=now.done, score=score, path=fitted.path,
                      temperature=fitted.effective_temperature)  # fmt: skip
    now.write(folder)
    return now


def _check_paid(problem: Problem, trial: Ledger) -> None:
    """What the engine charged for a trial is what the search was charged for it."""
    assert problem.recipe.search is not None
    step, steps = problem.recipe.search.trial[0]
    for event, count in trial.merged().items():
        same = event.kind == step.kind and event.probability == step.probability  # type: ignore[union-attr]
        if not same or count > steps or event.noise_multiplier < step.noise_multiplier * (1 - 1e-9):  # type: ignore[union-attr]
            raise LedgerError(f"a trial took {count} steps of {event}, the search was charged for {steps} of {step}")


def trial_score(predictor: Predictor, data: Encoded, randomness: Randomness) -> float:
    """The sum of all units' scores, with noise. Charged as a part of the trial; no unit adds more than 1."""
    assert predictor.problem.search is not None
    noise = predictor.problem.recipe.trial_noise
    assert noise is not None
    each = _record_scores(predictor, data)
    weights = weights_of(data)
    total = float((each if weights is None else each * weights).sum())
    return total + noise * float(randomness.normals(1)[0])


def _record_scores(predictor: Predictor, data: Encoded) -> Floats:
    """Between 0 and 1, of each record by itself; what is no number is worth nothing."""
    problem = predictor.problem
    assert problem.search is not None
    if not len(data.targets):
        return np.zeros(0)
    if problem.classes is None:
        middle, half = target_scale(problem.schema, problem.target)
        wrong = predictor.numbers(data.inputs).mean.numpy() - (middle + half * data.targets.astype(np.float64))
        found = 1 - np.minimum((wrong / half / _CUT) ** 2, 1.0)
    else:
        said, labels = predictor.classes(data.inputs).mean.double().numpy(), data.targets.astype(np.int64)
        if problem.search.by == "accuracy":
            found = (said.argmax(1) == labels).astype(np.float64)
        else:
            found = 1 - np.square(said - np.eye(said.shape[1])[labels]).sum(1) / 2
    each = np.clip(np.nan_to_num(found), 0.0, 1.0)
    return np.asarray(each if data.weights is None else each * data.weights)
