"""F11: whatever the disk holds after a crash, what was released is charged, and at most one block more.

Small runs of the real code take place on a disk that notes every call. Before each call, every state that a crash could
leave is recovered by the real code: the checkpoint is read, the ledger opened, the budget asked, one more block taken.
"""

import errno
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from functools import lru_cache, partial
from pathlib import Path

import torch

import tacit
from reliability.crash_disk import CrashDisk, Files
from reliability.figures import Figure, tries
from tacit.accountants import BudgetGate
from tacit.errors import BudgetError, LedgerError, TacitError
from tacit.ledger import verify_ledger
from tacit.storage.append_only import head_path
from tacit.storage.disk import using
from tacit.storage.files import read_bytes
from tacit.training.chains import Chains, Keeping
from tacit.training.checkpoints import Checkpoint, plan_fingerprint, read_checkpoint

ROOT = Path("/disk")
LEDGER, CHECKPOINT = ROOT / "runs" / "one" / "ledger.jsonl", ROOT / "kept" / "checkpoint"
BLOCK, STEPS = 3, 8
Script = Callable[[CrashDisk], None]

SAMPLING, NOISE = tacit.PoissonSampling(0.5, 20), tacit.GaussianNoise(multiplier=2.0)
MODEL = torch.nn.Linear(2, 1)
DATA = (torch.zeros(40, 2), torch.zeros(40))
BUDGET = tacit.Budget(4.9, 1e-5)
PLAN = tacit.TrainingPlan(SAMPLING, tacit.ClipRecords(1.0), NOISE, STEPS, LEDGER, BUDGET, block=BLOCK)
HEADER = PLAN.header(tacit.Randomness())
EVENT = tacit.ledger.PoissonSample(0.5, (tacit.ledger.GaussianSumQuery(1.0, 2.0),))


def charged_block(file: tacit.ledger.LedgerFile, disk: CrashDisk, released: int) -> int:
    """Charge a block, then release some of its steps."""
    assert admitted(file.ledger.charges)
    number = file.reserve([tacit.ledger.Charge(EVENT, BLOCK)])
    disk.released += released
    return number


def blocks(disk: CrashDisk) -> None:
    """A run from its first folder to its end, settled in the middle of a block."""
    with tacit.ledger.LedgerFile(LEDGER, HEADER) as file:
        file.plan(STEPS)
        for released in (BLOCK, BLOCK, 1):
            block = charged_block(file, disk, released)
        file.settle(block, 1)


def resumes(disk: CrashDisk) -> None:
    """A run that is left and taken up twice."""
    for _ in range(3):
        with tacit.ledger.LedgerFile(LEDGER, HEADER) as file:
            file.resume(disk.released, file.ledger.steps - disk.released)
            file.settle(charged_block(file, disk, 2), 2)


def checkpoints(disk: CrashDisk) -> None:
    """A ledger and a checkpoint, in folders of their own, written in turn."""
    with tacit.ledger.LedgerFile(LEDGER, HEADER) as file:
        for _ in range(2):
            charged_block(file, disk, BLOCK)
            Checkpoint(disk.released, LIKE, file.head, plan_fingerprint(PLAN)).write(CHECKPOINT)


def training(disk: CrashDisk, *, resume: bool = False) -> None:
    """The engine itself."""

    def count(step: int) -> None:
        disk.released += 1

    tacit.train(METHOD, DATA, PLAN, checkpoint=CHECKPOINT, checkpoint_every=2, on_step=count, resume=resume)


def losses(model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return (model(batch[0])[:, 0] - batch[1]).square()


METHOD = tacit.SGD(MODEL, losses, 0.1)
LIKE = Chains(METHOD, STEPS, Keeping()).content


class Watched(CrashDisk):
    """Looks at every state before every call, those apart that were seen before."""

    def __init__(self, files: Files, look: Callable[[Files, int], None], released: int = 0) -> None:
        super().__init__(ROOT, files)
        self.released = released
        self._look = look
        self._seen: set[int] = set()

    def at_call(self, name: str) -> None:
        super().at_call(name)
        for files in self.after_crash():
            key = hash((self.released, frozenset(files.items())))
            if key not in self._seen:
                self._seen.add(key)
                self._look(files, self.released)


def run(script: Script, files: Files, look: Callable[[Files, int], None], released: int = 0) -> CrashDisk:
    disk = Watched(files, look, released)
    with using(disk):
        script(disk)
    disk.at_call("end")
    return disk


def visible(disk: CrashDisk) -> Files:
    return {path: disk.nodes[name.now].content for path, name in disk.names.items() if (name.now or 0) >= 0
            and name.now is not None}  # fmt: skip


@lru_cache(maxsize=4096)
def admitted(charges: tuple[tacit.ledger.Charge, ...]) -> bool:
    try:
        BudgetGate(BUDGET)(tacit.ledger.Ledger(HEADER, charges), [tacit.ledger.Charge(EVENT, BLOCK)])
    except BudgetError:
        return False
    return True


@lru_cache(maxsize=1)
def most_steps() -> int:
    """How many steps the budget allows, found by asking for one after the other."""
    steps = 0
    while (
        tacit.guarantees(tacit.ledger.Ledger.planned([tacit.ledger.Charge(EVENT, steps + 1)]), 1e-5)[0].epsilon
        <= BUDGET.epsilon
    ):
        steps += 1
    return steps


def recovered(files: Files, released: int, crashes: int) -> CrashDisk:
    """Take up the run from what a crash has left; raise if a promise is broken."""
    disk = CrashDisk(ROOT, files)
    with using(disk):
        found = read_checkpoint(CHECKPOINT, LIKE) if read_bytes(CHECKPOINT) is not None else None
        if found is not None:
            found.check(PLAN)  # its head is a prefix of the ledger
        with closing(tacit.ledger.LedgerFile(LEDGER, HEADER)) as file:
            charged = file.ledger.steps
            assert charged >= released, f"{released} steps were released, {charged} are charged"
            assert charged <= released + crashes * BLOCK, f"{released} released, {charged} charged"
            if admitted(file.ledger.charges):
                file.reserve([tacit.ledger.Charge(EVENT, BLOCK)])
            assert file.ledger.steps <= most_steps(), "over the budget"
        assert verify_ledger(LEDGER, since=found and found.head).head.to_bytes() == read_bytes(head_path(LEDGER))
        assert tacit.read_ledger(LEDGER).steps >= charged
    return disk


class Tally:
    """Counts states, and which of them broke a promise. Looks at a share of them only, with less effort."""

    def __init__(self, effort: float, crashes: int = 1) -> None:
        self._stride = max(1, round(1 / effort))
        self._crashes = crashes
        self._met = 0
        self.times = self.lost = 0
        self.first = ""
        self.kept: list[tuple[Files, int]] = []

    def __call__(self, files: Files, released: int) -> None:
        self._met += 1
        if (self._met - 1) % self._stride:
            return
        self.times += 1
        if self.times % 400 == 1:
            self.kept.append((files, released))
        try:
            recovered(files, released, self._crashes)
        except (AssertionError, TacitError, OSError, ValueError, KeyError) as error:
            self.lost += 1
            self.first = self.first or f"{type(error).__name__}: {error}"

    def figure(self, tried: str) -> Figure:
        return Figure("F11", tried, self.times, self.lost, self.first or "at most one block over-counted a crash")


def prove(effort: float) -> Iterable[Figure]:
    torch.manual_seed(0)
    once = Tally(effort)
    ended = visible(run(blocks, {}, once))
    run(resumes, ended, once, released=7)
    run(checkpoints, {}, once)
    engine = visible(run(training, {}, once))
    run(partial(training, resume=True), engine, once, released=STEPS)
    yield once.figure("states after a crash, recovered by the ledger and the checkpoint")
    twice = Tally(effort, crashes=2)
    for files, released in once.kept[: tries(90, effort, least=2)]:
        run(one_more, files, twice, released)
    yield twice.figure("states after a second crash, during recovery from the first")
    yield engine_goes_on(once.kept, tries(200, effort, least=2))
    yield refusals(effort)
    yield poisoned()


def one_more(disk: CrashDisk) -> None:
    with tacit.ledger.LedgerFile(LEDGER, HEADER) as file:
        if admitted(file.ledger.charges):
            charged_block(file, disk, BLOCK)


def engine_goes_on(states: list[tuple[Files, int]], times: int) -> Figure:
    """The engine itself, from some of these states to its end."""
    lost, first = 0, ""
    chosen = states[:: max(1, len(states) // times)][:times]
    for files, released in chosen:
        disk = CrashDisk(ROOT, files)
        disk.released = released
        with using(disk):
            with suppress(BudgetError):
                training(disk, resume=True)
            charged = tacit.read_ledger(LEDGER).steps
        if not disk.released <= charged <= min(disk.released + BLOCK, most_steps()):
            lost, first = lost + 1, first or f"{disk.released} released, {charged} charged"
    return Figure("F11", "runs that the engine took up after a crash and finished", len(chosen), lost, first)


KINDS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EROFS": errno.EROFS, "EACCES": errno.EACCES}


class Refusing(CrashDisk):
    """Fails at one call with an error of the disk; a write leaves half of what it was asked for."""

    def __init__(self, call: int, code: int, files: Files) -> None:
        super().__init__(ROOT, files)
        self.call, self._code = call, code

    def at_call(self, name: str) -> None:
        super().at_call(name)
        if len(self.calls) == self.call:
            raise OSError(self._code, "the disk refuses")

    def write(self, file: int, data: bytes | memoryview) -> int:
        if len(self.calls) + 1 == self.call:
            node = self._node(file)
            node.change(node.content + bytes(data[: len(data) // 2]))
        return super().write(file, data)


def refusals(effort: float) -> Figure:
    """Every call of every script fails once, in every way: one line says so, and nothing is lost."""
    times, lost, first = 0, 0, ""
    for script, files, released in _scripts():
        for call, code in _every(script, files, released, effort):
            times += 1
            try:
                _refused(script, files, released, call, code)
            except AssertionError as error:
                lost, first = lost + 1, first or f"{script.__name__}, call {call}, {code}: {error}"
    return Figure("F11", "calls of the disk that failed (EIO, ENOSPC, EROFS, EACCES, half a write)", times, lost, first)


def _scripts() -> Iterator[tuple[Script, Files, int]]:
    ended = visible(run(blocks, {}, lambda *_: None))
    yield from ((blocks, {}, 0), (resumes, ended, 7), (checkpoints, {}, 0), (training, {}, 0))


def _every(script: Script, files: Files, released: int, effort: float) -> Iterator[tuple[int, int]]:
    calls = len(run(script, files, lambda *_: None, released).calls) - 1
    some = [(call, code) for call in range(1, calls + 1) for code in KINDS.values()]
    yield from some[:: max(1, len(some) // tries(len(some), effort))]


def _refused(script: Script, files: Files, released: int, call: int, code: int) -> None:
    disk = Refusing(call, code, files)
    disk.released = released
    with using(disk):
        try:
            script(disk)
        except OSError as error:
            if not isinstance(error, TacitError):
                raise AssertionError(f"a bare {error!r}") from error
        except TacitError as error:
            if "\n" in str(error):
                raise AssertionError(f"more than a line: {error}") from error
    _check_all(disk)


def _check_all(disk: CrashDisk) -> None:
    states = [visible(disk), *list(disk.after_crash())[::50]]
    for files in states:
        try:
            recovered(files, disk.released, crashes=1)
        except (TacitError, OSError) as error:
            raise AssertionError(f"cannot go on: {error}") from error


def poisoned() -> Figure:
    """After a failed sync the same object charges nothing more, though the disk would take it now."""
    lost = 0
    for code in KINDS.values():
        disk = Refusing(-1, code, {})
        with using(disk), tacit.ledger.LedgerFile(LEDGER, HEADER) as file:
            disk.call = len(disk.calls) + 2  # the write goes well, the sync does not
            lost += sum(_charges(file) for _ in range(2)) + (not file.broken)
        recovered(visible(disk), 0, crashes=1)
    return Figure("F11", "charges through a ledger whose sync has failed", 2 * len(KINDS), lost)


def _charges(file: tacit.ledger.LedgerFile) -> bool:
    try:
        file.reserve([tacit.ledger.Charge(EVENT, BLOCK)])
    except LedgerError:
        return False
    return True
