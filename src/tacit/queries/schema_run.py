"""A run that begins with questions: what its schema leaves open is asked for and charged first, in the same ledger."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tacit.accountants.budget import charge_within
from tacit.ledger import Charge, LedgerFile, is_begun, read_ledger
from tacit.queries.kept_key import drawn_once, forgotten_if_refused, keep_key, kept_request, note_charge
from tacit.queries.questions import Questions
from tacit.runs import Problem, RunFacts, RunFolder
from tacit.tables import Schema, Table

if TYPE_CHECKING:
    from tacit.randomness import Randomness


def begin_with_questions(
    questions: Questions,
    table: Table,
    folder: RunFolder,
    problem_of: Callable[[Schema], Problem],
    *,
    registry: str | None = None,
    shared: tuple[str, float] | None = None,
    randomness: "Randomness | None" = None,
) -> RunFacts:
    """Charge, ask, and note what was found; ``train_table(..., begun=True)`` goes on from there.

    A stop after that takes nothing away: :func:`go_on_asking` draws the very same answers.

    Args:
        problem_of: what is to be learned with a schema that is filled in. It is tried out before anything is charged.
        shared: the ledger that is charged with other runs, as run.json names it, and its total.
    """
    from tacit.runs.fit import check_shared_budget
    from tacit.runs.whole_run import plan_of

    questions.check_table(table)
    ledger, total = shared or (None, None)
    first = replace(problem_of(questions.placeholder()), asked=questions.event)
    facts = RunFacts(first, shared_ledger=ledger, shared_epsilon=total, registry=registry, asking=True)
    _ = facts.problem.recipe  # refuses bad numbers before anything is written
    check_shared_budget(first, plan_of(facts, folder), Charge(questions.event, 1))
    with folder.claimed(new=True):
        folder.write_facts(facts)
        if randomness is None:
            keep_key(folder, table, {"schema": questions.schema.to_json()})
        return _with_answers(facts, questions, table, folder, randomness, charged=False)


def go_on_asking(facts: RunFacts, table: Table, folder: RunFolder) -> RunFacts:
    """The facts of a run that was stopped while it asked; what was paid for is not paid for again."""
    request = kept_request(folder)
    schema = Schema.from_json(request.get("schema"))
    questions = Questions(schema, facts.problem.epsilon, facts.problem.delta)
    questions.check_table(table)
    own = facts.shared_ledger is None and is_begun(folder.ledger) and bool(read_ledger(folder.ledger).charges)
    with folder.claimed(new=False):
        return _with_answers(facts, questions, table, folder, None, charged=own or request.get("charged") is True)


def _with_answers(
    facts: RunFacts, questions: Questions, table: Table, folder: RunFolder, randomness: "Randomness | None", *,
    charged: bool,
) -> RunFacts:  # fmt: skip
    if not charged:
        with forgotten_if_refused(folder):
            _charge(facts, questions, folder, randomness)
        note_charge(folder)
    found = drawn_once(folder, table, randomness, lambda normals: questions.answered(table, normals).to_json())
    filled = replace(facts.problem, schema=Schema.from_json(found), asked=questions.event)
    facts = replace(facts, problem=filled, asking=False)
    folder.write_facts(facts)
    folder.asking.unlink(missing_ok=True)
    return facts


def _charge(facts: RunFacts, questions: Questions, folder: RunFolder, randomness: "Randomness | None") -> None:
    from tacit.randomness import Randomness
    from tacit.runs.whole_run import plan_of

    plan, charges = plan_of(facts, folder), [Charge(questions.event, 1)]
    with LedgerFile(plan.ledger, plan.header(randomness or Randomness())) as file:
        charge_within(plan.budget, file, charges)
