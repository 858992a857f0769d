"""The command line as a function: exit code, standard output and standard error."""

import pytest

from tacit.commands.app import run


@pytest.fixture
def tacit(capsys):
    def call(*arguments):
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
