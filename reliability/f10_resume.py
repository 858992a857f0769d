"""F10: a run that was stopped and taken up costs exactly what an uninterrupted one does; without its ledger it ends."""

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import tacit
from reliability.figures import Figure, tries
from reliability.small_run import STEPS, train
from tacit.errors import TacitError

DELTA = 1e-5


def prove(effort: float) -> Iterable[Figure]:
    resumes = tries(20, effort, least=2)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        lost = 0
        for stop in range(1, resumes + 1):
            lost += train(folder / "run", stop_at=stop) is not None
            lost += tacit.read_ledger(folder / "run").steps != stop
        whole, resumed = train(folder / "whole"), train(folder / "run")
        assert whole is not None
        assert resumed is not None
        lost += _epsilons(whole.ledger) != _epsilons(tacit.read_ledger(folder / "run"))
        reached = f"epsilon {_epsilons(whole.ledger)[0]:.6f} both times"
        yield Figure("F10", "resumes, then epsilon replayed from the ledger", resumes, lost, reached, "exactly equal")
        yield _without_its_ledger(folder, tries(20, effort, least=2))


def _epsilons(ledger: tacit.ledger.Ledger) -> list[float]:
    return [one.epsilon for one in tacit.guarantees(ledger, DELTA) if isinstance(one, tacit.Guarantee)]


def _without_its_ledger(folder: Path, times: int) -> Figure:
    """The ledger is missing, older, of another run, or rolled back together with its head."""
    lost = 0
    for number in range(times):
        run, old = folder / f"run-{number}", folder / f"old-{number}"
        train(run, stop_at=2 + number % 5)
        shutil.copytree(run, old)
        train(run, stop_at=10 + number % (STEPS - 10))
        for path in run.glob("ledger.jsonl*"):
            path.unlink()
        match number % 3:
            case 1:
                _copy_ledger(old, run)
            case 2:
                train(folder / f"other-{number}", stop_at=12)
                _copy_ledger(folder / f"other-{number}", run)
        before = _size(run)
        try:
            train(run)
            lost += 1
        except TacitError:
            lost += _size(run) != before
    return Figure(
        "F10", "runs taken up with a missing, older or other ledger", times, lost, "all refused, none made anew"
    )


def _copy_ledger(source: Path, target: Path) -> None:
    for path in source.glob("ledger.jsonl*"):
        shutil.copy(path, target)


def _size(run: Path) -> int:
    return sum(path.stat().st_size for path in run.glob("ledger.jsonl*"))
