"""F31: every command for a user whom the machine does not know: no entry for the number and no HOME, as in containers.

Each is a fresh process, because what looks for a home mostly does so while it is imported.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import chdir
from pathlib import Path

from reliability.every_command import COMMANDS, Command, prepare
from reliability.figures import Figure
from reliability.processes import environment
from reliability.small_table import Said

NOBODY = 12345


def prove(effort: float) -> Iterable[Figure]:
    commands = COMMANDS if effort > 0.05 else [COMMANDS[0], COMMANDS[7]]
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        prepare(place / "template")
        user = NOBODY if os.getuid() == 0 and _may_import(place) else None
        wrong = [f"tacit {command.name}: {said}" for command in commands if (said := _fault(command, place, user))]
    who = "an unknown user" if user else "a user"
    return [Figure("F31", f"commands of {who} without HOME", len(commands), len(wrong), "; ".join(wrong[:2]),
                   "each succeeds")]  # fmt: skip


def _may_import(place: Path) -> bool:
    """Whether the unknown user may read the interpreter and its packages at all."""
    return _run(("--version",), place, NOBODY).code == 0


def _fault(command: Command, place: Path, user: int | None) -> str:
    here = place / "here"
    shutil.rmtree(here, ignore_errors=True)
    shutil.copytree(place / "template", here)
    if user is not None:
        for path in (here, *here.rglob("*")):
            os.chown(path, user, user)
    with chdir(here):
        said = _run(command.words, here, user)
        if said.code or "Traceback" in said.err:
            return f"exit {said.code}: {said.err[-300:]}"
        return "" if not command.makes or Path(command.makes).exists() else f"{command.makes} is not there"


def _run(words: tuple[str, ...], here: Path, user: int | None) -> Said:
    """Compiled kernels go to a folder for temporary files that outlives the command, as /tmp does."""
    temporary = here.parent / "tmp"
    temporary.mkdir(exist_ok=True)
    temporary.chmod(0o1777)
    kept = ("PATH", "PYTHONPATH", "OMP_NUM_THREADS", "LD_LIBRARY_PATH")
    known = {name: value for name, value in environment(TMPDIR=str(temporary)).items() if name in (*kept, "TMPDIR")}
    groups = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    done = subprocess.run(
        [sys.executable, "-m", "tacit", *words], env=known, cwd=here, capture_output=True, text=True, **groups
    )
    return Said(done.returncode, done.stdout, done.stderr)
