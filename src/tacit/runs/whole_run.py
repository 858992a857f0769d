"""Train a private model on the records of a table, from declared facts to a finished folder.

``tacit train`` and the scikit-learn estimators are two faces of :func:`train_table`: the first reads options and files
and prints, the others take arrays and keep the folder's files in memory.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tacit.accountants import Budget
from tacit.ledger import RegisteredLedger
from tacit.ledger.registry import read_registry
from tacit.randomness import Randomness
from tacit.runs.facts import RunFacts
from tacit.runs.fit import Fitted, check_shared_budget, fit, training_plan, with_spread
from tacit.runs.folder import RunFolder
from tacit.runs.predictions import Predictor
from tacit.runs.quality.evaluation import evaluate
from tacit.runs.quality.hold_out import release_scores, split_off
from tacit.runs.search.trials import search
from tacit.runs.spread import Histogram
from tacit.storage.files import is_there
from tacit.tables import Encoded
from tacit.training import TrainingPlan


@dataclass(frozen=True, slots=True)
class TrainedTable:
    """A finished run: its facts, and what was learned with the ledger that says what it cost."""

    facts: RunFacts
    fitted: Fitted

    @property
    def predictor(self) -> Predictor:
        return Predictor(self.facts.problem, self.fitted.posterior, self.fitted.spread)


def train_table(
    facts: RunFacts,
    data: Encoded,
    folder: RunFolder,
    *,
    test: Encoded | None = None,
    resume: bool = False,
    begun: bool = False,
    checkpoints: bool = True,
    randomness: Randomness | None = None,
    assumptions: tuple[str, ...] = (),
    on_step: Callable[[int], None] | None = None,
) -> TrainedTable:
    """Run the problem of ``facts`` on the records, in a folder that was free, or go on with the run that is there.

    Every check comes before the first file and the first charge; the manifest is written last.

    Args:
        data: the private records, encoded by the problem's schema.
        test: public records, to evaluate on and, with ``facts.evidence``, to gather evidence about.
        begun: the folder's ledger was charged for what the schema left open, and the run goes on from there.
        checkpoints: whether the run can be gone on with; without them a run that is stopped is lost.
        assumptions: what the guarantee rests on besides what the schema says.
    """
    problem, randomness = facts.problem, randomness or Randomness()
    plan = plan_of(facts, folder, assumptions)
    if not resume:
        check_shared_budget(problem, plan)
    with folder.claimed(new=not (resume or begun)):
        if not resume:
            folder.write_facts(facts)
        held = None
        if problem.hold_out:
            split = resume and (is_there(folder.hold_out) or is_there(folder.checkpoint))
            data, held = split_off(data, problem.hold_out, folder, randomness, resume=split)
        if problem.search is not None:
            found = _searched(facts, data, plan, folder, randomness, resume=resume)
            return _finished(folder, found, held, plan, test, randomness)
        started = time.perf_counter()
        fitted = fit(
            problem, data, plan, randomness=randomness, probes=test if facts.evidence else None, members=facts.evidence,
            on_step=on_step, checkpoint=folder.checkpoint if checkpoints else None, resume=resume,
            histogram=_histogram(folder, facts),
        )  # fmt: skip
        done = replace(
            facts,
            effective_temperature=fitted.effective_temperature,
            spread=fitted.spread,
            seconds=round(time.perf_counter() - started, 1),
            steps=fitted.steps,
            path=fitted.path,
        )
        return _finished(folder, TrainedTable(done, fitted), held, plan, test, randomness)


def _finished(
    folder: RunFolder, trained: TrainedTable, held: Encoded | None, plan: TrainingPlan, test: Encoded | None,
    randomness: Randomness,
) -> TrainedTable:  # fmt: skip
    if held is not None:
        trained = _scored(folder, trained, held, randomness)
    _save(folder, trained, plan, test)
    return trained


def _searched(
    facts: RunFacts, data: Encoded, plan: TrainingPlan, folder: RunFolder, randomness: Randomness, *, resume: bool
) -> TrainedTable:
    """The best of a search's trials. How long it took is not kept: it would tell how many there were."""
    found = search(facts.problem, data, plan, folder, randomness, resume=resume)
    chosen = replace(facts, problem=found.problem)
    fitted = with_spread(found.problem, data, plan, found.fitted, randomness, _histogram(folder, chosen))
    known = {"effective_temperature": fitted.effective_temperature, "spread": fitted.spread, "steps": fitted.steps,
             "path": fitted.path, "trial_score": found.score}  # fmt: skip
    return TrainedTable(replace(chosen, **known), fitted)  # type: ignore[arg-type]


def _scored(folder: RunFolder, trained: TrainedTable, held: Encoded, randomness: Randomness) -> TrainedTable:
    """The run with its score. One that was begun and lost may have been seen, and is not drawn a second time."""
    facts, noise = trained.facts, trained.facts.problem.recipe.score_noise
    if facts.score_begun or noise is None:
        return trained
    begun = replace(facts, score_begun=True)
    folder.write_facts(begun)
    scores = release_scores(trained.predictor, held, noise, randomness)
    return replace(trained, facts=replace(begun, score={"scores": scores}))


def plan_of(facts: RunFacts, folder: RunFolder, assumptions: tuple[str, ...] = ()) -> TrainingPlan:
    """All public facts of the training, and the ledger that it is charged to."""
    problem, ledger = facts.problem, folder.place_of_ledger(facts)
    if isinstance(ledger, RegisteredLedger) and is_there(Path(ledger.registry)):
        read_registry(ledger.registry)  # another file, or a damaged one, is refused before anything is written
    budget = None if facts.shared_epsilon is None else Budget(facts.shared_epsilon, problem.delta)
    plan = training_plan(problem, ledger, budget)
    return replace(plan, assumptions=(*plan.assumptions, *assumptions))


def _histogram(folder: RunFolder, facts: RunFacts) -> Histogram:
    """How far the run came with its residuals, and how it notes in run.json that it goes further."""
    begun = replace(facts, spread_begun=True)
    return Histogram(
        facts.spread,
        facts.spread_begun,
        begin=lambda: folder.write_facts(begun),
        keep=lambda spread: folder.write_facts(replace(begun, spread=spread)),
    )


def _save(folder: RunFolder, trained: TrainedTable, plan: TrainingPlan, test: Encoded | None) -> None:
    """What the run leaves behind. First what was released and would have to be paid for again."""
    facts = trained.facts
    folder.write_facts(facts)
    trained.fitted.posterior.save(folder.posterior)
    if facts.shared_ledger is not None:
        folder.keep_shared_ledger(Path(plan.ledger))
    if test is not None and facts.public_test is not None:
        folder.write_evaluation(evaluate(trained.predictor, test, facts.public_test))
    folder.finish()
