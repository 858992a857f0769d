"""F11: real processes that train are killed at random times, politely or not, or meet a full disk, and are taken up.

A kill does not test syncs, because what was written survives it; the crashes do (f11_crashes). It tests the order of
things: a release is counted in memory that outlives the process, before anything gets hold of it.
"""

import errno
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

import tacit
from reliability.figures import Figure, tries
from reliability.processes import Counter, answer, count_releases, ended, forked, in_its_own_process
from tacit.errors import LedgerError, StorageError, TacitError
from tacit.training import PrivateSum

BLOCK = 5
KILLS_PER_RUN = 20  # then a new run: a ledger is read whole when it is opened
REACH = 2 * BLOCK  # releases after which a process has been killed at the latest, about


def prove(effort: float) -> Iterable[Figure]:
    return in_its_own_process("reliability.f11_kills", effort)


@dataclass(slots=True)
class Trained:
    """A run in a folder that children go on with, one after the other."""

    folder: Path
    releases: Counter
    steps: int = 100_000

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.jsonl"

    @property
    def plan(self) -> tacit.TrainingPlan:
        noise = tacit.GaussianNoise(multiplier=1.0)
        return tacit.TrainingPlan(
            tacit.PoissonSampling(0.5, 10), tacit.ClipRecords(1.0), noise, self.steps, self.ledger, block=BLOCK
        )

    @property
    def charged(self) -> int:
        """Nothing as long as the first line is not whole: such a ledger was never opened."""
        begun = self.ledger.exists() and b"\n" in self.ledger.read_bytes()
        return tacit.read_ledger(self.ledger).steps if begun else 0

    @property
    def over(self) -> int:
        return self.charged - self.releases.value

    def train(self) -> None:
        torch.manual_seed(0)
        method = tacit.SGD(torch.nn.Linear(2, 1), _losses, 0.1)
        data = (torch.zeros(20, 2), torch.zeros(20))
        checkpoint = self.folder / "kept" / "checkpoint"
        tacit.train(method, data, self.plan, checkpoint=checkpoint, checkpoint_every=3, resume=True)

    def child(self, before: Callable[[], None] = lambda: None) -> int:
        """A process that trains until something ends it; its exit code says what."""
        return forked(lambda: self._train_and_say(before))

    def _train_and_say(self, before: Callable[[], None]) -> int:
        try:
            before()
            count_releases(self.releases)
            self.train()
        except (LedgerError, StorageError):
            return 3
        except (KeyboardInterrupt, SystemExit):
            return 4
        return 1

    def wait_for(self, releases: int) -> None:
        while self.releases.value < releases:
            time.sleep(0.0005)


def _losses(model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return (model(batch[0])[:, 0] - batch[1]).square()


def kills(folder: Path, times: int, chance: random.Random) -> Figure:
    lost, largest, released, unreadable = 0, 0, 0, 0
    run = Trained(folder / "first", Counter())
    longest = _seconds_to(REACH, run)
    for number in range(times):
        if number % KILLS_PER_RUN == 0:
            released += run.releases.value
            run = Trained(folder / str(number), Counter())
            over = 0
        process = run.child()
        time.sleep(chance.uniform(0, longest))
        os.kill(process, signal.SIGKILL)
        unreadable += ended(process) != -signal.SIGKILL
        largest, lost = max(largest, run.over - over), lost + (run.over < 0 or run.over - over > BLOCK)
        over = run.over
    reached = (
        f"{released + run.releases.value:,} releases, at most {largest} of a block of {BLOCK} over-counted by a kill"
    )
    return Figure("F11", "training processes killed (kill -9) and taken up", times, lost + unreadable, reached)


def _seconds_to(releases: int, run: Trained) -> float:
    start, process = time.perf_counter(), run.child()
    run.wait_for(releases)
    seconds = time.perf_counter() - start
    os.kill(process, signal.SIGKILL)
    ended(process)
    return seconds


def polite(folder: Path, times: int, chance: random.Random) -> Figure:
    """Ctrl-C, SIGTERM, SIGHUP: the step in hand is finished, the rest of the block given back, and the run goes on."""
    run, lost = Trained(folder, Counter()), 0
    for number in range(times):
        process = run.child(before=_as_in_a_program)
        run.wait_for(run.releases.value + 1)
        time.sleep(chance.uniform(0, 0.01))
        os.kill(process, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)[number % 3])
        lost += ended(process) != 4 or run.over != 0
    return Figure("F11", "runs stopped by Ctrl-C, SIGTERM or SIGHUP and taken up, nothing over-counted", times, lost)


def _as_in_a_program() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def full_disks(folder: Path, times: int, chance: random.Random) -> Figure:
    """A limit on the size of files: writes stop in the middle, as on a full disk. With room again the run goes on."""
    lost = 0
    for number in range(times):
        run = Trained(folder / str(number), Counter())
        room = chance.randrange(1, 6000)
        lost += ended(run.child(before=lambda room=room: _limit(room))) != 3 or not 0 <= run.over <= BLOCK
        before = run.releases.value
        process = run.child()
        run.wait_for(before + 1)
        os.kill(process, signal.SIGKILL)
        lost += ended(process) != -signal.SIGKILL or not 0 <= run.over <= 2 * BLOCK
    return Figure("F11", "runs that met a full disk and were taken up when there was room", times, lost)


def _limit(room: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))


def second_writers(folder: Path, times: int) -> Figure:
    lost, longest = 0, 0.0
    run = Trained(folder, Counter())
    process = run.child()
    run.wait_for(1)
    for _ in range(times):
        start = time.perf_counter()
        try:
            tacit.ledger.LedgerFile(run.ledger, run.plan.header(tacit.Randomness())).close()
            lost += 1
        except LedgerError as error:
            lost += "another writer" not in str(error)
        longest = max(longest, time.perf_counter() - start)
    os.kill(process, signal.SIGKILL)
    ended(process)
    reached = f"refused after {1000 * longest:.1f} ms at most"
    return Figure("F21", "second writers to a ledger in use", times, lost, reached, "within 1 s", longest < 1)


def links(folder: Path, times: int) -> Figure:
    """A ledger, a head or a checkpoint that is a symbolic link: what it points to is neither read nor written."""
    lost = 0
    for number in range(times):
        run = Trained(folder / str(number), Counter())
        victim = folder / f"victim-{number}"
        for name in ("ledger.jsonl", "ledger.jsonl.head.new", "kept/checkpoint", "kept/checkpoint.new"):
            link = run.folder / name
            link.parent.mkdir(parents=True, exist_ok=True)
            victim.write_bytes(b"do not touch")
            link.symlink_to(victim)
            lost += _refused(run.train) or victim.read_bytes() != b"do not touch"
            link.unlink()
            for path in (run.ledger, run.ledger.with_name("ledger.jsonl.head")):
                with suppress(FileNotFoundError):
                    path.unlink()
    return Figure("F21", "ledgers, heads and checkpoints that are links elsewhere", 4 * times, lost)


def _refused(act: Callable[[], object]) -> bool:
    """False if it was refused as it should be: to be added to what was lost."""
    original = PrivateSum.release
    seen = 0

    def short(*given):  # type: ignore[no-untyped-def]
        nonlocal seen
        seen += 1
        if seen > 3 * BLOCK:
            raise OSError(errno.ETIME, "it went on")
        return original(*given)

    PrivateSum.release = short  # type: ignore[method-assign]
    try:
        act()
    except TacitError:
        return False
    except OSError:
        return True
    finally:
        PrivateSum.release = original  # type: ignore[method-assign]
    return True


def serve(effort: float) -> None:
    torch.set_num_threads(1)
    chance = random.Random(11)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        Trained(folder / "warm", Counter(), steps=2).train()  # imports what a child would else import itself
        answer([
            kills(folder / "kills", tries(1000, effort, least=3), chance),
            polite(folder / "polite", tries(100, effort, least=3), chance),
            full_disks(folder / "full", tries(100, effort, least=2), chance),
            second_writers(folder / "two", tries(100, effort, least=2)),
            links(folder / "links", tries(10, effort)),
        ])  # fmt: skip


if __name__ == "__main__":
    serve(float(sys.argv[1]))
