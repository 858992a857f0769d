"""F9: no noise is drawn twice, by ranks, forks or resumes, and no key ever reaches a file."""

import base64
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

import tacit
from reliability.figures import Figure, tries
from reliability.small_run import train

PROCESSES, STEPS, RESUMES, WORDS = 4, 100, 20, 64


def prove(effort: float) -> Iterable[Figure]:
    steps, resumes = tries(STEPS, effort, least=3), tries(RESUMES, effort, least=2)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        streams = _of_processes(lambda: _key_stream(steps))
        yield _figure(f"key streams of {PROCESSES} forks of one source, {steps} steps each", streams)
        releases = _of_processes(lambda: _releases(folder / str(os.getpid()), steps))
        with _keys() as keys:
            for stop in range(1, resumes + 1):
                releases += _releases(folder / "resumed", steps=resumes + 1, stop_at=stop)
        yield _figure(f"released noise of {PROCESSES} processes and {resumes} resumes", releases)
        yield _searched(folder, keys)


def _figure(tried: str, parts: list[bytes]) -> Figure:
    blocks = [part[start : start + 16] for part in parts for start in range(0, len(part), 16)]
    repeated = len(blocks) - len(set(blocks))
    return Figure("F9", f"16-byte blocks: {tried}", len(blocks), repeated, goal="0 repeated")


_SOURCE = tacit.Randomness()  # one for all: a fork has to take a new key by itself


def _key_stream(steps: int) -> list[bytes]:
    return [_SOURCE.words("noise", WORDS).tobytes() for _ in range(steps)]


def _releases(folder: Path, steps: int, stop_at: int | None = None) -> list[bytes]:
    seen: list[bytes] = []
    train(folder, steps=steps, stop_at=stop_at, seen=lambda value: seen.append(value.numpy().tobytes()))
    return seen


def _of_processes(work) -> list[bytes]:  # type: ignore[no-untyped-def]
    """What several children of this process come to, and this process itself after one word of its own."""
    _SOURCE.words("noise", 1)
    parts: list[bytes] = []
    for _ in range(PROCESSES):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            torch.set_num_threads(1)
            code = 1
            try:
                with os.fdopen(writer, "wb") as file:
                    for part in work():
                        file.write(len(part).to_bytes(4, "little") + part)
                code = 0
            finally:
                os._exit(code)
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            parts += list(_parts(file.read()))
        assert os.waitpid(child, 0)[1] == 0, "a child failed"
    return parts + work()


def _parts(data: bytes) -> Iterator[bytes]:
    while data:
        length = int.from_bytes(data[:4], "little")
        yield data[4 : 4 + length]
        data = data[4 + length :]


@contextmanager
def _keys() -> Iterator[list[bytes]]:
    """Every key that is taken meanwhile."""
    found: list[bytes] = []
    start = tacit.Randomness._start

    def noting(source: tacit.Randomness, key: bytes) -> None:
        found.append(key)
        start(source, key)

    tacit.Randomness._start = noting  # type: ignore[method-assign]
    try:
        yield found
    finally:
        tacit.Randomness._start = start  # type: ignore[method-assign]


def _searched(folder: Path, keys: list[bytes]) -> Figure:
    files = [path.read_bytes() for path in (folder / "resumed").rglob("*") if path.is_file()]
    spellings = [spelling for key in keys for spelling in _spellings(key)]
    found = sum(spelling in file for spelling in spellings for file in files)
    return Figure("F9", f"keys looked for in {len(files)} files of a run, in four spellings", len(spellings), found)


def _spellings(key: bytes) -> list[bytes]:
    plain, coded = key.hex().encode(), base64.b64encode(key).rstrip(b"=")
    return [key, key[::-1], plain, coded]
