"""F27 and F29: threads that train at once, release the same sample, or charge one ledger; forks in the middle of it.

Forks of an engine, samples released twice and helpers that outlive a run are also tried by the attacks on the boundary
(F9, F11) and in tests/ledger/test_locks.py.
"""

import os
import random
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

import tacit
from reliability import small_run
from reliability.figures import Figure, tries
from reliability.processes import Counter, answer, ended, forked, in_its_own_process
from tacit.errors import TacitError

MOST = 8  # threads at once


def prove(effort: float) -> Iterable[Figure]:
    return in_its_own_process("reliability.f27_threads", effort)


def together(count: int, act: Callable[[int], object]) -> list[BaseException | None]:
    """What so many threads that begin together ended with: an error, or nothing."""
    start, ends = threading.Barrier(count), [None] * count

    def run(number: int) -> None:
        try:
            start.wait()
            act(number)
        except BaseException as error:
            ends[number] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return list(ends)


def apart(folder: Path, times: int, chance: random.Random) -> Figure:
    """Every thread its own run of a model with dropout: all are charged, and the program's generator is as it was."""
    wrong = []
    for number in range(times):
        plans = [small_run.plan(folder / f"{number}-{thread}") for thread in range(chance.randint(2, MOST))]
        models = [torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(16, 1).double()) for _ in plans]
        before = torch.get_rng_state()
        ends = together(len(plans), lambda thread, plans=plans, models=models: _train(models[thread], plans[thread]))
        steps = [] if any(ends) else [tacit.read_ledger(plan.ledger).steps for plan in plans]
        if set(steps) != {small_run.STEPS} or not torch.equal(before, torch.get_rng_state()):
            wrong.append(f"{[end for end in ends if end][:1]}, {steps} steps")
    return Figure("F27", "times that 2 to 8 threads trained at once", times, len(wrong), "; ".join(wrong[:1]),
                  "every run whole, the global generator as it was")  # fmt: skip


def _train(model: torch.nn.Module, plan: tacit.TrainingPlan) -> tacit.training.Run:
    return tacit.train(tacit.SGD(model, small_run.losses, 0.1), small_run.data(), plan)


def one_sample(folder: Path, times: int, chance: random.Random) -> Figure:
    """All threads release the same sample: one of them gets it."""
    wrong = []
    for number in range(times):
        model = torch.nn.Linear(16, 1, bias=False, dtype=torch.float64)
        plan = small_run.plan(folder / str(number))
        with tacit.PrivateGradient(
            model, small_run.losses, plan.sampling, plan.clipping, plan.noise, ledger=plan.ledger
        ) as private:
            for sample in private.samples(small_run.data(), steps=1):
                ends = together(chance.randint(2, MOST), lambda _, s=sample, p=private: p.backward(s))
        refused = [end for end in ends if isinstance(end, TacitError)]
        if len(refused) != len(ends) - 1 or tacit.read_ledger(plan.ledger).steps != 1:
            wrong.append(str(ends))
    return Figure("F27", "samples that 2 to 8 threads released at once", times, len(wrong), "; ".join(wrong[:1]),
                  "one release each")  # fmt: skip


def one_ledger(folder: Path, times: int, chance: random.Random) -> Figure:
    """All threads charge the same open ledger: no charge is lost, and the chain is intact."""
    charges = [tacit.ledger.Charge(tacit.ledger.PoissonSample(0.01, (tacit.ledger.GaussianSumQuery(1.0, 1.1),)), 1)]
    wrong = []
    for number in range(times):
        path, count = folder / f"{number}.jsonl", chance.randint(2, MOST)
        with tacit.ledger.LedgerFile(path, tacit.ledger.LedgerHeader(dataset="threads")) as ledger:
            ends = together(count, lambda _, ledger=ledger: [ledger.reserve(charges) for _ in range(20)])
        try:
            steps: object = tacit.read_ledger(path).steps
        except TacitError as error:
            steps = error
        if any(ends) or steps != 20 * count:
            wrong.append(f"{20 * count} charged, {steps} read, {[end for end in ends if end][:1]}")
    return Figure("F27", "ledgers that 2 to 8 threads charged at once", times, len(wrong), "; ".join(wrong[:1]),
                  "no charge lost, the chain intact")  # fmt: skip


def forks(folder: Path, times: int, chance: random.Random) -> Figure:
    """A process that trains forks at a random step; the child tries to go on as well and must release nothing."""
    wrong = []
    for number in range(times):
        place, parent, child = folder / str(number), Counter(), Counter()
        at = chance.randrange(1, small_run.STEPS)
        code = ended(forked(lambda place=place, at=at, p=parent, c=child: _train_and_fork(place, at, p, c)))
        charged = tacit.read_ledger(place / "ledger.jsonl").steps
        if code or child.value or not charged == parent.value == small_run.STEPS:
            wrong.append(f"exit {code}, {parent.value} and {child.value} released, {charged} charged")
    return Figure("F27", "runs that forked at a random step, the child going on too", times, len(wrong),
                  "; ".join(wrong[:1]), "as many releases as charges, all of the parent")  # fmt: skip


def _train_and_fork(place: Path, at: int, parent: Counter, child: Counter) -> int:
    """The exit code of the parent; the child ends by itself, by the refusal that it meets."""
    me, releases = os.getpid(), [0]
    helpers = []

    def on_release(_: torch.Tensor) -> None:
        (parent if os.getpid() == me else child).add()
        releases[0] += 1
        if releases[0] == at and os.getpid() == me and (helper := os.fork()):
            helpers.append(helper)

    try:
        small_run.train(place, seen=on_release)
    except TacitError:
        return 1 if os.getpid() == me else 0
    finally:
        if os.getpid() != me:
            os._exit(0)
    return sum(ended(helper) for helper in helpers)


def serve(effort: float) -> None:
    torch.set_num_threads(1)
    chance = random.Random(27)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        small_run.train(folder / "warm", steps=2)
        figures = [forks(folder / "forks", tries(100, effort, least=2), chance)]  # before there are threads
        answer([
            *figures,
            apart(folder / "apart", tries(100, effort, least=2), chance),
            one_sample(folder / "sample", tries(200, effort, least=3), chance),
            one_ledger(folder / "ledger", tries(100, effort, least=2), chance),
        ])  # fmt: skip


if __name__ == "__main__":
    serve(float(sys.argv[1]))
