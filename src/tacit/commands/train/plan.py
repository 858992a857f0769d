"""``tacit train --plan``: what to expect of a private classifier, from declared numbers and made-up records alone."""

from pathlib import Path

from tacit.commands.output import print_json, say
from tacit.commands.train.request import Request, problem_of, schema_of
from tacit.errors import InputError
from tacit.runs import Problem
from tacit.tables import Table, default_delta

_BESIDE = (0.25, 0.5, 2.0, 4.0)  # of the epsilon that is asked about
_NEAR = 0.01  # of the best there could be


def planned_run(table: Table, data: Path, asked: Request, schema: Path | None, public: Path | None) -> Problem:
    """The problem as it would be run; of the table nothing but its names is looked at."""
    declared = schema_of(table, data, asked, schema, public)
    target = asked.target or declared.target
    if target is None or asked.epsilon is None:
        raise InputError("--plan needs --epsilon, and --target or target = ... in the schema")
    declared.check(target)
    return problem_of(asked, declared, target, default_delta(declared.units), False)


def say_plan(problem: Problem, best: float, *, as_json: bool) -> None:
    from tacit.runs.quality.expected import expected_accuracy

    epsilons = sorted({problem.epsilon, *(round(problem.epsilon * factor, 6) for factor in _BESIDE)})
    found = expected_accuracy(problem, epsilons, best)
    near = next((one.epsilon for one in found if one.accuracy >= best - _NEAR), None)
    if as_json:
        rows = [{"epsilon": one.epsilon, "accuracy": one.accuracy, "stddev": one.spread} for one in found]
        print_json({"best": best, "expected": rows, "epsilon_within_a_point": near})
        return
    for one in found:
        say(f": {one.accuracy:.1%} right (sd {one.spread:.1%}).", head=f"epsilon {one.epsilon:g}")
    within = "none of these comes" if near is None else f"epsilon {near:g} comes"
    say(f"The best classifier would get {best:.0%} right, you assume (--best); {within} within a point of it.")
    say(f"Made-up tables of {problem.schema.units:,} even records; nothing was read and nothing charged.", style="dim")
