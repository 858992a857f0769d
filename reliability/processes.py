"""Real processes at little cost: they are forked from one that has everything imported and has no threads yet."""

import json
import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

from reliability.figures import Figure
from tacit.training import PrivateSum

ROOT = Path(__file__).resolve().parent.parent


def in_its_own_process(module: str, effort: float, before: Iterable[str] = ()) -> list[Figure]:
    """The figures that ``python -m MODULE EFFORT`` answers with; ``before`` may start it in another way."""
    command = [*before, sys.executable, "-m", module, str(effort)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{module} failed: {done.stderr[-500:]}")
    return [Figure(**figure) for figure in json.loads(done.stdout.splitlines()[-1])]


def answer(figures: Iterable[Figure]) -> None:
    """What such a process prints last."""
    print(json.dumps([asdict(figure) for figure in figures]))


def environment(**changed: str) -> dict[str, str]:
    """That of this process, so that another one finds the same packages and does not start threads of its own."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), *filter(None, sys.path)])
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **changed}


def forked(act: Callable[[], int]) -> int:
    """The number of a process that does this, and ends with the code that it returns."""
    process = os.fork()
    if process:
        return process
    code = 99
    try:
        code = act()
        sys.stdout.flush()
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def ended(process: int) -> int:
    """Wait for it; its exit code, or the negative number of the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def at_once(count: int, act: Callable[[int], int]) -> list[int]:
    """The exit codes of so many processes that begin together."""
    wait, go = os.pipe()

    def begin(number: int) -> int:
        os.close(go)
        os.read(wait, 1)  # ends when the parent closes the other end
        return act(number)

    processes = [forked(lambda number=number: begin(number)) for number in range(count)]
    os.close(wait)
    os.close(go)
    return [ended(process) for process in processes]


class Counter:
    """Releases, in memory that is shared with a child and outlives it."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8)

    @property
    def value(self) -> int:
        return int.from_bytes(self._memory[:8], "little")

    def add(self) -> None:
        self._memory[:8] = (self.value + 1).to_bytes(8, "little")


def count_releases(releases: Counter) -> None:
    """Count every release of this process from now on, before anything gets hold of it."""
    release = PrivateSum.release

    def counted(*given):  # type: ignore[no-untyped-def]
        released = release(*given)
        releases.add()
        return released

    PrivateSum.release = counted  # type: ignore[method-assign]
