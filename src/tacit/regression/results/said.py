"""What to know before the numbers are used: warnings, and what was declared. All follows from public numbers."""

from typing import TYPE_CHECKING

from tacit.regression.newton.declared import ENOUGH
from tacit.regression.newton.plan import PARTS
from tacit.runs.assumed import spread_sentence

if TYPE_CHECKING:
    from tacit.regression.regression import Regression

_CLAMPED = 0.01  # the share of clamped outcomes from which it is said
_FAR = 4.0  # standard deviations of a last step from which the curvature is not that of the optimum

_DROPPED = {
    "spread": "what was released contradicts the declaration beyond its noise: a weighted sum of columns varies less",
    "scores": "scores do not fit the released curvature beyond their noise: columns have more in common than it shows",
}


def assumptions(found: "Regression") -> list[str]:
    """What intervals rest on besides the model: a declaration of the user, where the releases do not contradict it."""
    spread = found.problem.spread
    return [] if spread is None or found.dropped else [spread_sentence(spread)]


def warnings(found: "Regression") -> list[str]:
    """One line each."""
    said, rows, spread = [], found.coefficients(), found.problem.spread
    if found.dropped:
        said.append(f"{_DROPPED[found.dropped]}; so assume_spread {spread:g} was not used: intervals are without it")
    unclear = [row.name for row in rows if not row.is_identified]
    if unclear:
        which = "all coefficients" if len(unclear) == len(rows) else ", ".join(unclear)
        rest = "the prior's intervals are given" if found.draws.is_proper else "no interval is stated"
        said.append(
            f"not identified: {which}; too few records tell of it at this epsilon, so {rest}: more records, more "
            "epsilon, fewer columns or levels, closer bounds of columns that are heaped at one end, " + _ways_out(found)
        )
    if found.convergence > _FAR:
        said.append(
            f"the last step was {found.convergence:.1f} standard deviations long: the curvature was not taken at "
            "the optimum, and intervals may be off; more epsilon or a closer declaration of the bounds helps"
        )
    if found.at_bounds > _CLAMPED:
        said.append(
            f"about {found.at_bounds:.0%} of outcomes lie at the declared bounds or beyond and count as the bound, "
            "which biases a linear model: intervals may miss the truth; declare wider bounds, which cost little"
        )
    if found.lost:
        said.append(
            f"stops lost {found.lost} of {PARTS * len(found.problem.plan.names)} parts of releases that were paid "
            "for: intervals know it and are wider"
        )
    return said


def _ways_out(found: "Regression") -> str:
    """A prior, and a declaration where it would help."""
    problem, prior = found.problem, "a prior (--prior gaussian:SCALE)"
    if problem.family.outputs > 1 or len(problem.names) <= 2 or found.dropped:
        return f"or {prior}"
    if problem.spread is None:
        return f"{prior}, or, if it is known that no sum of columns hardly varies, --assume-spread"
    return f"or {prior}" + (f"; an assumed spread below {ENOUGH:.2f} leaves too much open" * (problem.spread < ENOUGH))
