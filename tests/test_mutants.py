"""Every seeded privacy bug is caught by the check that is named for it, and by no chance: the right code passes."""

import pytest

from tacit.kernels import library
from tests.mutants import MUTANTS
from tests.mutants.catchers import CATCHERS
from tests.mutants.mutant import attempt

SLOW = {one.catcher for one in MUTANTS if one.slow}


def marked(mutant):
    marks = [pytest.mark.slow] if mutant.slow else []
    if mutant.kernels:
        marks.append(pytest.mark.skipif(library() is None, reason="no compiler"))
    return pytest.param(mutant, id=mutant.name, marks=marks)


@pytest.mark.parametrize("mutant", [marked(mutant) for mutant in MUTANTS])
@pytest.mark.filterwarnings("ignore")  # wrong code may warn
def test_a_privacy_bug_is_caught(mutant):
    trial = attempt(mutant, CATCHERS[mutant.catcher])
    assert trial.caught, f"{mutant.name} survived {mutant.catcher}, which said: {trial.by}"


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in CATCHERS])
def test_the_right_code_passes(name):
    assert not list(CATCHERS[name]())


def test_there_are_enough_of_them():
    assert len(MUTANTS) >= 40
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
