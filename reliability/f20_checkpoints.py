"""F20: a file that was made to run code when it is read runs none. It is refused in one line."""

import io
import json
import os
import pickle
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

import tacit
from reliability import small_run
from reliability.figures import Figure, tries
from tacit.errors import TacitError
from tacit.ledger import Head
from tacit.storage import digests
from tacit.training import Checkpoint, read_checkpoint


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.target),)


def prove(effort: float) -> Iterable[Figure]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        target = folder / "it ran"
        _check_that_bombs_work(target)
        times = executed = accepted = 0
        for name, data in list(_hostile(target))[: tries(1000, effort, least=40)]:
            (folder / "file").write_bytes(data)
            for read in _READERS:
                times += 1
                accepted += not _refused(lambda read=read: read(folder / "file"), name)
                executed += target.exists()
        yield Figure("F20", "hostile checkpoints, posteriors and evidence: code that ran", times, executed)
        yield Figure("F20", "hostile files that were not refused in one line", times, accepted)


def _check_that_bombs_work(target: Path) -> None:
    pickle.loads(pickle.dumps(Bomb(target)))  # noqa: S301 (our own bomb, to see that it would go off)
    assert target.exists(), "the bomb is a dud"
    target.rmdir()


def _train_on(path: Path) -> object:
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "checkpoint").write_bytes(path.read_bytes())
        return small_run.train(Path(place), steps=1)


_READERS: tuple[Callable[[Path], object], ...] = (
    read_checkpoint,
    _train_on,
    tacit.load_posterior,
    tacit.evidence.load_evidence,
)


def _refused(read: Callable[[], object], name: str) -> bool:
    try:
        read()
    except TacitError as error:
        return "\n" not in str(error)
    return False


def _hostile(target: Path) -> Iterator[tuple[str, bytes]]:
    bomb = Bomb(target)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        yield f"pickle {protocol}", pickle.dumps(bomb, protocol)
        yield f"pickle in a dict {protocol}", pickle.dumps({"state": bomb, "tacit_checkpoint": bomb}, protocol)
    for zipped in (True, False):
        buffer = io.BytesIO()
        torch.save({"model": bomb}, buffer, _use_new_zipfile_serialization=zipped)
        yield f"torch.save, zip {zipped}", buffer.getvalue()
    buffer = io.BytesIO()
    np.savez(buffer, shares=np.array([bomb], dtype=object))
    yield "npz of objects", buffer.getvalue()
    buffer = io.BytesIO()
    np.save(buffer, np.array([bomb], dtype=object))
    yield "npy of objects", buffer.getvalue()
    yield "zip", _zip({"archive/data.pkl": pickle.dumps(bomb), "../../escape": b"x"})
    yield "script", b"#!/bin/sh\nmkdir '" + str(target).encode() + b"'\n"
    yield from _odd_headers(pickle.dumps(bomb))
    yield from _odd_facts(str(target))


def _zip(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, data in files.items():
            file.writestr(name, data)
    return buffer.getvalue()


def _odd_headers(payload: bytes) -> Iterator[tuple[str, bytes]]:
    """Safetensors whose headers lie."""
    good = save({"a": torch.ones(2)}, {"tacit_checkpoint": "{}", "format": "tacit-evidence-2"})
    length = struct.unpack("<Q", good[:8])[0]
    header = json.loads(good[8 : 8 + length])
    yield "a pickle behind the header", good + payload
    yield "a pickle before it", payload + good
    for claimed in (0, 1, length - 1, length + 1, 1 << 31, 1 << 62, (1 << 64) - 1):
        yield f"header length {claimed}", struct.pack("<Q", claimed) + good[8:]
    for offsets in ([0, 4], [0, 1 << 60], [8, 0], [-1, 8], [0.0, 8.0], "08", None):
        yield f"offsets {offsets}", _with_header({**header, "a": {**header["a"], "data_offsets": offsets}}, good[-8:])
    for shape in ([1 << 40], [-2], [2, 0], [1 << 62, 1 << 62], ["2"], {}):
        yield f"shape {shape}", _with_header({**header, "a": {**header["a"], "shape": shape}}, good[-8:])
    for dtype in ("O", "PICKLE", "F4", "F8_E8M0", "C64", "", None, "object"):
        yield f"dtype {dtype}", _with_header({**header, "a": {**header["a"], "dtype": dtype}}, good[-8:])
    for metadata in ({"tacit_checkpoint": 1}, {"tacit_checkpoint": {"a": 1}}, [], "x", {"tacit_posterior": "swag"}):
        yield f"metadata {metadata}", _with_header({**header, "__metadata__": metadata}, good[-8:])
    for raw in (b"{", b"[" * 100_000, b'{"a":' * 50_000, b"\xff" * 50, b"null", b'{"__metadata__":{}}', b""):
        yield f"header {raw[:10]!r}", struct.pack("<Q", len(raw)) + raw


def _with_header(header: Any, data: bytes) -> bytes:
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


FACTS = {
    "format": 2, "step": 1, "content": None, "head": {"count": 0, "hash": "0" * 64}, "plan": "p", "charged_before": 0,
    "clip_norm": 1.0,
}  # fmt: skip


def _odd_facts(target: str) -> Iterator[tuple[str, bytes]]:
    """Checkpoints in good form, digest and all, whose facts are impossible. Some name code, which nothing looks up."""
    code = f"__import__('os').mkdir({target!r})"
    possible = {("clip_norm", 1.5), ("plan", code), ("plan", "nan")}  # another plan's name is refused later
    possible |= {("content", value) for value in (code, -1, 1.5, True, None, 1 << 70, "nan")}  # a user may keep these
    for name in FACTS:
        for value in (code, -1, 1.5, True, [], {}, None, "nan", 1 << 70, {"tensor": "missing"}, {"map": code}):
            if not isinstance(value, list | dict) and (name, value) in possible:
                continue
            yield f"{name} {value!r}", _checkpoint({**FACTS, name: value})
        yield f"without {name}", _checkpoint({key: value for key, value in FACTS.items() if key != name})
    for content in ({"fields": {"__class__": code}}, {"map": [[{"list": []}, 1]]}, {"map": [[1, 2, 3]]}, {"tuple": 3}):
        yield f"content {content}", _checkpoint({**FACTS, "content": content})
    for number in ("NaN", "Infinity", "-Infinity", "1e999", "0", "1e-320"):
        text = json.dumps(FACTS).replace('"clip_norm": 1.0', f'"clip_norm": {number}')
        yield f"clip_norm {number}", _checkpoint(text)
    yield "deep", _checkpoint('{"format": 2, "content": ' + "[" * 90_000 + "]" * 90_000 + "}")


def _checkpoint(facts: dict[str, Any] | str) -> bytes:
    text = facts if isinstance(facts, str) else json.dumps(facts)
    data = save({"0": torch.ones(1)}, {"tacit_checkpoint": text, digests.NAME: digests.UNKNOWN})
    return digests.with_digest(data)


def good_checkpoint_is_read() -> bool:
    """The form above is the real one: without a lie in it, it is read."""
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "file").write_bytes(_checkpoint(FACTS))
        return read_checkpoint(Path(place) / "file") == Checkpoint(1, None, Head(0, "0" * 64), "p")
