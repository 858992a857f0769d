"""F21: every changed bit, every missing or moved line, every truncation of a ledger or its head is found."""

import io
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr
from pathlib import Path

import tacit
from reliability.figures import Figure, tries
from tacit.commands.app import run as command
from tacit.errors import LedgerError

HEADER = tacit.ledger.LedgerHeader(dataset="proof", epsilon=3.0, delta=1e-5)
Change = tuple[bytes, bytes]


def prove(effort: float) -> Iterable[Figure]:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "ledger.jsonl"
        charged = _made(path)
        whole, head = path.read_bytes(), _head(path).read_bytes()
        for tried, changes in _kinds(whole, head).items():
            yield _figure(path, tried, _some(list(changes), effort), charged)
        path.write_bytes(whole)
        _head(path).write_bytes(head)
        yield _by_command(path, whole, tries(100, effort, least=2))


def _made(path: Path) -> int:
    """A ledger with records of all kinds; says how many steps it charges."""
    small = tacit.ledger.PoissonSample(0.01, (tacit.ledger.GaussianSumQuery(1.0, 1.1),))
    grouped = tacit.ledger.PoissonSample(
        0.5, (tacit.ledger.GaussianSumQuery(1.0, 2.0, group="a"), tacit.ledger.GaussianSumQuery(2.0, 3.0))
    )
    with tacit.ledger.LedgerFile(path, HEADER) as ledger:
        ledger.plan(60)
        ledger.reserve([tacit.ledger.Charge(small, 20)])
        ledger.settle(ledger.reserve([tacit.ledger.Charge(small, 13), tacit.ledger.Charge(grouped, 7)]), 15)
        ledger.resume(35, 5)
    path.write_bytes(path.read_bytes() + b'{"charges":[{"ev')
    with tacit.ledger.LedgerFile(path, HEADER) as ledger:
        return ledger.ledger.steps


def _head(path: Path) -> Path:
    return path.with_name(path.name + ".head")


def _kinds(whole: bytes, head: bytes) -> dict[str, Iterator[Change]]:
    lines = whole.splitlines(keepends=True)
    return {
        "bits of a ledger changed": ((one, head) for one in _flips(whole)),
        "bytes of a ledger left out or put in": ((one, head) for one in (*_shorter(whole), *_longer(whole))),
        "truncations of a ledger": ((whole[:length], head) for length in range(len(whole))),
        "lines left out, doubled or moved": ((one, head) for one in _lines(lines)),
        "bits of a head changed": ((whole, one) for one in _flips(head)),
        "truncations of a head": ((whole, head[:length]) for length in range(len(head))),
    }


def _flips(data: bytes) -> Iterator[bytes]:
    for place in range(len(data)):
        for bit in range(8):
            yield data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def _shorter(data: bytes) -> Iterator[bytes]:
    yield from (data[:place] + data[place + 1 :] for place in range(len(data)))


def _longer(data: bytes) -> Iterator[bytes]:
    """A blank, a brace or a newline anywhere but at the end, where it would be a torn tail."""
    yield from (data[:place] + more + data[place:] for place in range(len(data)) for more in (b" ", b"{", b"\n"))


def _lines(lines: list[bytes]) -> Iterator[bytes]:
    for number, line in enumerate(lines):
        rest = lines[:number] + lines[number + 1 :]
        yield b"".join(rest)
        for place in range(len(lines) + 1):
            yield b"".join([*lines[:place], line, *lines[place:]])
        for place in range(len(rest) + 1):
            if place != number:
                yield b"".join([*rest[:place], line, *rest[place:]])


def _some(changes: list[Change], effort: float) -> list[Change]:
    return random.Random(21).sample(changes, tries(len(changes), effort, least=5))


def _figure(path: Path, tried: str, changes: list[Change], charged: int) -> Figure:
    lost = 0
    for whole, head in changes:
        path.write_bytes(whole)
        _head(path).write_bytes(head)
        lost += not _found(lambda: tacit.read_ledger(path)) or not _found(lambda: _opened(path))
        lost += path.read_bytes() != whole
    return Figure("F21", tried, len(changes), lost, f"a ledger of {charged} steps: refused, and left as it was")


def _opened(path: Path) -> None:
    tacit.ledger.LedgerFile(path, HEADER).close()


def _found(act: Callable[[], object]) -> bool:
    try:
        act()
    except LedgerError:
        return True
    return False


def _by_command(path: Path, whole: bytes, times: int) -> Figure:
    """The command line says so too, with exit code 2."""
    chance, lost = random.Random(22), 0
    for _ in range(times):
        place, bit = chance.randrange(len(whole)), chance.randrange(8)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
        with redirect_stderr(io.StringIO()):
            lost += command([*chance.choice((["account"], ["ledger", "verify"], ["ledger", "head"])), str(path)]) != 2
    return Figure("F21", "changed ledgers shown to the command line", times, lost, "exit code 2")
