"""Every seeded privacy bug is caught by the check that is named for it."""

from collections.abc import Iterator
from itertools import chain

from reliability.figures import Figure
from tests.mutants import MUTANTS
from tests.mutants.catchers import CATCHERS
from tests.mutants.mutant import attempt

_SAMPLE = 17  # with little effort, every so manieth


def prove(effort: float) -> Iterator[Figure]:
    mutants = MUTANTS if effort >= 0.1 else [one for one in MUTANTS if not one.slow][::_SAMPLE]
    survived = [one.name for one in mutants if not attempt(one, CATCHERS[one.catcher]).caught]
    wrong = {one.catcher for one in mutants if list(CATCHERS[one.catcher]())}
    yield Figure("audit", "seeded privacy bugs that survive", len(mutants), len(survived), ", ".join(survived),
                 "at least 40, all caught")  # fmt: skip
    catchers = set(chain.from_iterable([one.catcher] for one in mutants))
    yield Figure("audit", "their checks, on the right code", len(catchers), len(wrong))
