"""Bad input is refused in one line that names it; nothing is written and nothing charged (failure-modes F22)."""

import pytest

from reliability.bad_calls import all_calls, commands
from reliability.f22_bad_input import fault_of, fault_of_command


def test_there_are_enough_cases():
    assert len(all_calls()) > 1000
    assert len(list(commands())) > 100


@pytest.mark.parametrize("part", range(20))
def test_calls_are_refused(part):
    assert [found for case in all_calls()[part::20] if (found := fault_of(case))] == []


def test_commands_are_refused():
    assert [found for arguments in commands() if (found := fault_of_command(arguments))] == []


def test_a_file_of_somebody_is_not_taken_for_a_ledger(tmp_path):
    import tacit

    path = tmp_path / "thesis.txt"
    path.write_text("ten years of work")
    with pytest.raises(tacit.errors.LedgerError, match="another file"):
        tacit.ledger.LedgerFile(path, tacit.ledger.LedgerHeader())
    assert path.read_text() == "ten years of work"
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.txt"]
