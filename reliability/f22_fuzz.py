"""F22: files changed at random. Nothing but Tacit's own errors comes out, and nothing damaged is believed."""

import io
import random
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.io import savemat

import tacit
from reliability.f23_archives import GOOD, MEMBER, SIZE, entry, tar
from reliability.figures import Figure, tries
from tacit.data.abalone import parse_table
from tacit.data.archives import untar
from tacit.data.mnist import read_idx
from tacit.data.svhn import parse_mat
from tacit.errors import TacitError
from tacit.evidence import Evidence, Stretch, save_evidence
from tacit.ledger import Head, verify_ledger
from tacit.training import Checkpoint, read_checkpoint

HEADER = tacit.ledger.LedgerHeader(dataset="fuzz")
NOTHING = Head(0, "0" * 64)


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of file: an example, how it is read, and whether every change of it has to be found."""

    name: str
    data: bytes
    read: Callable[[Path], object]
    sealed: bool


def prove(effort: float) -> Iterable[Figure]:
    chance = random.Random(23)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for target, weight in _targets(folder):
            times = tries(weight, effort, least=10)
            lost, first = 0, ""
            for _ in range(times):
                found = _fault(target, changed(target.data, chance), folder)
                lost, first = lost + bool(found), first or found
            yield Figure("F22", f"{target.name} changed at random", times, lost, first)


def _targets(folder: Path) -> list[tuple[Target, int]]:
    ledger = folder / "run" / "ledger.jsonl"
    event = tacit.ledger.PoissonSample(0.1, (tacit.ledger.GaussianSumQuery(1.0, 1.0),))
    with tacit.ledger.LedgerFile(ledger, HEADER) as file:
        file.plan(9)
        file.settle(file.reserve([tacit.ledger.Charge(event, 5)]), 3)
    head = ledger.with_name("ledger.jsonl.head")
    Checkpoint(3, {"w": torch.ones(4), "n": [1, "x", None]}, NOTHING, "plan").write(folder / "checkpoint")
    shares = np.full((2, 3), 0.5, np.float32)
    save_evidence(Evidence(Head(1, "f" * 64), "probes", shares, (Stretch(0.1, 1.0, 2, 0, 1),)), folder / "evidence")
    tacit.Draws({"w": torch.ones(4, 2)}).save(folder / "posterior")
    mat = io.BytesIO()
    savemat(mat, {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.ones((2, 1), np.uint8)})
    idx = b"\0\0\x08\x02" + (3).to_bytes(4, "big") + (2).to_bytes(4, "big") + bytes(6)

    def read_ledger(path: Path) -> object:
        ledger.write_bytes(path.read_bytes())
        return tacit.read_ledger(ledger)

    def read_head(path: Path) -> object:
        ledger.write_bytes(whole)
        head.write_bytes(path.read_bytes())
        try:
            return verify_ledger(ledger)
        finally:
            head.write_bytes(known)

    whole, known = ledger.read_bytes(), head.read_bytes()
    return [
        (Target("ledgers", whole, read_ledger, sealed=True), 2000),
        (Target("heads", known, read_head, sealed=True), 1000),
        (Target("checkpoints", (folder / "checkpoint").read_bytes(), read_checkpoint, sealed=True), 2000),
        (Target("evidence", (folder / "evidence").read_bytes(), tacit.evidence.load_evidence, sealed=True), 2000),
        (Target("posteriors", (folder / "posterior").read_bytes(), tacit.load_posterior, sealed=False), 1000),
        (Target("idx images", idx, lambda path: read_idx(path.read_bytes(), "x"), sealed=False), 1000),
        (Target("tables", _TABLE, lambda path: parse_table(path.read_text("latin-1")), sealed=False), 500),
        (Target("mat files", mat.getvalue(), lambda path: parse_mat(path.read_bytes(), "x"), sealed=False), 250),
        (Target("archives", tar((entry(MEMBER), GOOD)), _untar, sealed=False), 250),
    ]


_TABLE = b"M,0.455,0.365,0.095,0.514,0.2245,0.101,0.15,15\nF,0.53,0.42,0.135,0.677,0.2565,0.1415,0.21,9\n"


def _untar(path: Path) -> object:
    return untar(path.read_bytes(), {MEMBER: SIZE}, "x")


def changed(data: bytes, chance: random.Random) -> bytes:
    """Some bits, bytes or stretches changed, left out, doubled or put in; never the same again."""
    result = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        place = chance.randrange(len(result) + 1) if result else 0
        end = min(len(result), place + chance.choice((1, 1, 4, 30)))
        match chance.randrange(7):
            case 0 if place < len(result):
                result[place] ^= 1 << chance.randrange(8)
            case 1:
                del result[place:end]
            case 2:
                result[place:place] = chance.randbytes(chance.choice((1, 4, 50)))
            case 3:
                del result[place:]
            case 4:
                result[place:place] = result[place:end]
            case 5:
                result[place:end] = bytes(end - place)
            case _:
                result[place:end] = chance.choice((b"9" * 30, b"-1", b"NaN", b"1e999", b'"', b"[" * 2000, b"\xff" * 8))
    return bytes(result) if result != data else bytes(result) + b"\0x"


def _fault(target: Target, data: bytes, folder: Path) -> str:
    path = folder / "fuzzed"
    path.write_bytes(data)
    try:
        target.read(path)
    except TacitError as error:
        return f"two lines: {error}" if "\n" in str(error) else ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    torn = target.name == "ledgers" and data.startswith(target.data)  # a tail cut short, which is charged
    return f"believed {data[:60]!r}" if target.sealed and not torn else ""
