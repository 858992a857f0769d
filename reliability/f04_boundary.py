"""F4 and others: attacks on the bound of one record, one figure each, and ordinary code that has to work."""

from collections.abc import Iterator

from reliability.boundary.catalogue import ATTACKS
from reliability.boundary.honest import PATTERNS
from reliability.figures import Figure

_GOAL = "moves at most 1, or is refused in one line"
_SHOWN = 160  # letters of a refusal


def prove(effort: float) -> Iterator[Figure]:
    """With little effort every eighth of the quick ones: the tests run them all by themselves."""
    attacks = list(ATTACKS.values())
    if effort < 0.01:
        attacks = [one for one in attacks if not (one.slow or one.apart or one.limit)][::8]
    for one in attacks:
        outcome = one.run()
        words = (f"known limit: {one.limit}; " if one.limit else "") + str(outcome).replace("|", "/")
        shown = words if len(words) <= _SHOWN else words[: _SHOWN - 4] + " ..."
        tried = f"{one.name} ({one.finding})"
        yield Figure(one.row, tried, 1, int(not outcome.holds), shown, _GOAL, outcome.holds)
    for name, build in list(PATTERNS.items())[:: 8 if effort < 0.01 else 1]:
        problem = build().problem().replace("|", "/")
        reached = problem[:_SHOWN] or "equal to the sum record by record"
        yield Figure("F4", f"honest code works: {name}", 1, int(bool(problem)), reached)
