"""F22: what nobody should ask for is refused in one line that names it; nothing is written, nothing is charged."""

import io
import os
import random
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from reliability.bad_calls import Case, all_calls, commands
from reliability.figures import Figure, tries
from tacit.commands.app import run
from tacit.errors import TacitError


def prove(effort: float) -> Iterable[Figure]:
    calls, lines = all_calls(), list(commands())
    some = random.Random(22).sample(calls, tries(len(calls), effort, least=40))
    wrong = [found for case in some if (found := fault_of(case))]
    yield Figure("F22", "calls with bad arguments, data or files", len(some), len(wrong), "; ".join(wrong[:1]))
    some_lines = random.Random(22).sample(lines, tries(len(lines), effort, least=20))
    wrong = [found for arguments in some_lines if (found := fault_of_command(arguments))]
    yield Figure("F22", "command lines with bad arguments", len(some_lines), len(wrong), "; ".join(wrong[:1]))


def fault_of(case: Case) -> str:
    """What is wrong with how a call is refused; nothing if all is well."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        try:
            case.act(Path(folder))
            return f"{case.name} was accepted"
        except TacitError as error:
            said = str(error)
        except Exception as error:
            return f"{case.name}: {type(error).__name__}: {error}"
        if "\n" in said or case.says not in said:
            return f"{case.name} said: {said}"
        return f"{case.name} wrote {os.listdir(folder)}" if os.listdir(folder) else ""


def fault_of_command(arguments: list[str]) -> str:
    with tempfile.TemporaryDirectory() as folder, chdir(folder), _captured() as (out, err):
        try:
            code = run(arguments)
        except Exception as error:
            return f"{arguments}: {type(error).__name__}: {error}"
        if code != 2 or out.getvalue() or not err.getvalue().startswith("tacit: ") or err.getvalue().count("\n") != 1:
            return f"{arguments}: exit {code}, {err.getvalue()!r}"
        return f"{arguments} wrote {os.listdir(folder)}" if os.listdir(folder) else ""


@contextmanager
def _captured() -> Iterator[tuple[io.StringIO, io.StringIO]]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        yield out, err
