"""Which files a thing passes on its way through the package: how far a reader has to walk to follow it.

    python tools/walk.py

Every call of a function of ours is noted; a hop is a call in another file than the one before. Hops within a room are
those from one of its files to another.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType

import torch
from torch import Tensor, nn

import tacit
import tacit.training

HOME = str(Path(tacit.__file__).parent)


def walk(action: Callable[[], object]) -> list[str]:
    """The file of every call of ours while the action runs, in order."""
    passed: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HOME):
            passed.append(frame.f_code.co_filename[len(HOME) + 1 :])

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return passed


def describe(name: str, passed: list[str], room: str) -> None:
    files = Counter(passed)
    hops = [(one, other) for one, other in pairwise(passed) if one != other]
    within = sum(one.startswith(room) and other.startswith(room) for one, other in hops)
    print(f"{name}: {len(files)} files, {len(hops)} hops, {within} of them within {room}, {len(passed)} calls")
    for file, calls in files.most_common():
        print(f"  {calls:6} {file}")


def minibatch(folder: str) -> list[str]:
    """A CNN's minibatch through ``private.backward``, once all is warm."""
    model = nn.Sequential(nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, 2),
                          nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(512, 10))  # fmt: skip

    def losses(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")

    private = tacit.PrivateGradient(
        model, losses, tacit.PoissonSampling(probability=0.25, expected_size=64), tacit.ClipRecords(1.0),
        tacit.GaussianNoise(multiplier=1.0), ledger=f"{folder}/minibatch.jsonl",
    )  # fmt: skip
    data = torch.randn(256, 1, 28, 28), torch.randint(0, 10, (256,))
    passed: list[str] = []
    for sample in private.samples(data, steps=8):
        passed = walk(lambda sample=sample: private.backward(sample))  # type: ignore[misc]
    private.close()
    return passed


def accounting(folder: str) -> list[str]:
    """The ledger of that run to its row in the table of guarantees: few steps, on a lattice."""
    from tacit.accountants import PLDAccountant
    from tacit.ledger import read_ledger

    ledger = read_ledger(Path(folder) / "minibatch.jsonl")
    return walk(lambda: PLDAccountant().guarantee(ledger, delta=1e-5))


def long_accounting() -> list[str]:
    """The ledger of a run of usual length, whose guarantee is a contour integral."""
    from tacit.accountants import PLDAccountant
    from tacit.ledger import Charge, GaussianSumQuery, Ledger, PoissonSample

    ledger = Ledger.planned([Charge(PoissonSample(256 / 60_000, (GaussianSumQuery(1.0, 1.3),)), 3516)])
    return walk(lambda: PLDAccountant().guarantee(ledger, delta=1e-5))


def table(folder: str) -> list[str]:
    """The records of a table to the posterior: what ``tacit train`` does, once all is warm."""
    from tacit.runs import Problem, RunFacts, RunFolder, train_table
    from tacit.tables import Flag, Number, Schema, encode, read_table

    path = Path(folder) / "table.csv"
    path.write_text("age,well\n" + "".join(f"{20 + row % 60},{'yes' if row % 3 else 'no'}\n" for row in range(300)))
    schema = Schema((Number("age", 0, 100), Flag("well")), records=300)
    facts = RunFacts(Problem(schema, "well", 3.0, 1e-5))

    def run(name: str) -> None:
        data = encode(read_table(path, schema.numbers), schema, "well")
        train_table(facts, data, RunFolder(Path(folder) / name), test=None)

    run("warm")
    return walk(lambda: run("measured"))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        describe("a minibatch of a CNN through private.backward", minibatch(folder), "gradients")
        describe("a table to its posterior", table(folder), "runs")
        describe("a ledger through the PLD accountant", accounting(folder), "accountants/pld")
        describe("a ledger of 3,516 steps through the PLD accountant", long_accounting(), "accountants/pld")


if __name__ == "__main__":
    main()
