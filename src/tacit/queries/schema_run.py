"""A run that begins with questions: what its schema leaves open is asked for and charged first, in the same ledger."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from tacit.accountants import BudgetGate
from tacit.ledger import Charge, LedgerFile
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

    A stop between the charge and the note loses the answers, which may have been seen: they are not asked for again.

    Args:
        problem_of: what is to be learned with a schema that is filled in. It is tried out before anything is charged.
        shared: the ledger that is charged with other runs, as run.json names it, and its total.
    """
    from tacit.randomness import Randomness
    from tacit.runs.fit import check_budget
    from tacit.runs.whole_run import plan_of

    questions.check_table(table)
    source = randomness or Randomness()

    def problem(schema: Schema) -> Problem:
        return replace(problem_of(schema), asked=questions.event)

    ledger, total = shared or (None, None)
    first = problem(questions.placeholder())
    facts = RunFacts(first, shared_ledger=ledger, shared_epsilon=total, registry=registry, asking=True)
    _ = facts.problem.recipe  # refuses bad numbers before anything is written
    plan = plan_of(facts, folder)
    check_budget(first, plan, Charge(questions.event, 1))
    with folder.claimed(new=True):
        folder.write_facts(facts)
        with LedgerFile(plan.ledger, plan.header(source)) as file:
            if plan.budget is not None:
                BudgetGate(plan.budget)(file.ledger, [Charge(questions.event, 1)])
            file.reserve([Charge(questions.event, 1)])
        found = questions.answered(table, lambda count: source.normals(count).numpy())
        facts = replace(facts, problem=problem(found), asking=False)
        folder.write_facts(facts)
    return facts
