"""Does noise come twice? 16-byte blocks of noise from this process and from forked ones must all differ (F9)."""

import os
import signal
import warnings

import torch

from tacit.randomness import Randomness

_STEPS, _COORDINATES = 100, 16
_ATTEMPTS, _PATIENCE = 5, 5


def repeated_blocks(processes: int) -> tuple[str, ...]:
    """Fork ``processes`` children that go on with this process' source; each releases noise 100 times."""
    source = Randomness()
    blocks = [*_blocks(_release(source)), *_blocks(_release(Randomness()))]
    for _ in range(processes):
        blocks += _blocks(_in_child(source))
    blocks += _blocks(_release(source))
    twice = len(blocks) - len(set(blocks))
    return (f"{twice} of {len(blocks)} 16-byte blocks of noise came twice",) if twice else ()


def _release(source: Randomness) -> bytes:
    outs = []
    for _ in range(_STEPS):
        out = torch.empty(_COORDINATES, dtype=torch.float64)
        source.add_noise([torch.zeros(_COORDINATES)], [1.0], 1.0, [out])
        outs.append(out)
    return torch.cat(outs).numpy().tobytes()


def _blocks(data: bytes) -> list[bytes]:
    return [data[start : start + 16] for start in range(0, len(data), 16)]


def _in_child(source: Randomness) -> bytes:
    """What a forked child releases. A fork beside other threads may hang through no fault of ours: then once more."""
    for _ in range(_ATTEMPTS):
        data = _fork(source)
        if data:
            return data
    raise RuntimeError("no forked process came to an end; the audit of noise over processes was not made")


def _fork(source: Randomness) -> bytes:
    reader, writer = os.pipe()
    with warnings.catch_warnings():  # newer Pythons warn about threads; the child only ciphers and leaves
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(_PATIENCE)
            os.write(writer, _release(source))  # fits into a pipe
        finally:
            os._exit(0)
    os.close(writer)
    parts = []
    while part := os.read(reader, 1 << 16):
        parts.append(part)
    os.close(reader)
    os.waitpid(child, 0)
    return b"".join(parts)
