"""Every seeded privacy bug is caught by the check that is named for it, and by no chance: the right code passes."""

from contextlib import ExitStack

import pytest

from tacit.audit import perform, self_checks
from tacit.kernels import library
from tests.mutants import EIGHTEEN, MUTANTS
from tests.mutants.catchers import CATCHERS
from tests.mutants.mutant import Mutant, attempt

SLOW = {one.catcher for one in MUTANTS if one.slow}
BY_NAME = {one.name: one for one in MUTANTS}


def marked(mutant, slow=False):
    marks = [pytest.mark.slow] if mutant.slow or slow else []
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
    assert len(BY_NAME) == len(MUTANTS)


def test_the_eighteen_bugs_of_the_outside_check_are_among_them_and_the_audit_must_catch_them():
    assert len(EIGHTEEN) == 18
    assert all(BY_NAME[name].catcher.startswith("audit:") for names in EIGHTEEN.values() for name in names)


@pytest.mark.parametrize("mutant", [marked(BY_NAME[name], slow=True) for names in EIGHTEEN.values() for name in names])
@pytest.mark.filterwarnings("ignore")
def test_the_audit_of_an_installation_catches_it_as_it_is_run(mutant):
    """Not by a check of the right size alone, but by ``tacit audit --self`` with its own; the first alarm ends it."""
    with ExitStack() as stack:
        for patch in mutant.patches():
            stack.enter_context(patch)
        assert any(not finding.held for finding, _ in perform(self_checks("standard")))


def test_an_error_of_the_audit_is_no_catch():
    def raising():
        raise KeyError(0)

    assert not attempt(Mutant("nothing", "F11", list, "audit: noise"), raising).caught
    assert attempt(Mutant("nothing", "F11", list, "a test"), raising).caught
