"""F23: archives made to write elsewhere, to fill the memory or to be something else. None of them writes anything."""

import gzip
import hashlib
import http.server
import io
import os
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

from reliability.figures import Figure
from tacit.data.archives import check_digest, gunzip, untar
from tacit.data.download import fetch
from tacit.errors import InputError

MEMBER, SIZE = "folder/data.bin", 100
GOOD = bytes(range(SIZE))


def tar(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for entry, content in entries:
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def entry(name: str, size: int = SIZE, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.size, found.type, found.linkname = size, kind, target
    return found


def hostile(outside: Path) -> dict[str, bytes]:
    """By what is wrong with them. Each would do harm if it were unpacked as it asks for."""
    good = (entry(MEMBER), GOOD)
    link = entry(MEMBER, 0, tarfile.SYMTYPE, str(outside / "secret"))
    huge = bytearray(gzip.decompress(tar(good)))
    huge[124:136] = b"77777777777\0"  # a size of 8 GB in the header
    huge[148:156] = b"        "
    huge[148:156] = b"%06o\0 " % sum(huge[:512])
    return {
        "path traversal": tar((entry(f"../../{outside.name}/escaped"), GOOD)),
        "absolute path": tar((entry(str(outside / "escaped")), GOOD)),
        "symbolic link": tar((link, b"")),
        "link, then a file through it": tar((entry("folder", 0, tarfile.SYMTYPE, str(outside)), b""), good),
        "hard link": tar((entry(MEMBER, 0, tarfile.LNKTYPE, str(outside / "secret")), b"")),
        "device": tar((entry(MEMBER, 0, tarfile.CHRTYPE), b"")),
        "fifo": tar((entry(MEMBER, 0, tarfile.FIFOTYPE), b"")),
        "folder in place of a file": tar((entry(MEMBER, 0, tarfile.DIRTYPE), b"")),
        "bomb": gzip.compress(bytes(1 << 28), 1),
        "bomb as a member": tar((entry(MEMBER, 1 << 26), bytes(1 << 26))),
        "two of one name": tar(good, (entry(MEMBER), bytes(SIZE))),
        "huge size in a header": gzip.compress(bytes(huge)),
        "truncated": tar(good)[:-40],
        "truncated inside": gzip.compress(gzip.decompress(tar(good))[:550]),
        "nested": tar((entry(MEMBER + ".tar.gz", 5), b"inner")),
        "smaller than it should be": tar((entry(MEMBER, 9), bytes(9))),
        "pickle": b"\x80\x04cos\nsystem\n.",
        "zip": b"PK\x03\x04" + bytes(100),
        "empty": b"",
        "garbage": os.urandom(500),
    }


def prove(effort: float) -> Iterable[Figure]:
    with tempfile.TemporaryDirectory() as place:
        outside, inside = Path(place) / "outside", Path(place) / "inside"
        outside.mkdir()
        inside.mkdir()
        (outside / "secret").write_bytes(GOOD)
        with chdir(inside):
            archives = hostile(outside)
            accepted = sum(not _refused(lambda data=data: _unpack(data)) for data in archives.values())
            accepted -= _only_what_was_asked_for(archives)
            written = [path for path in Path(place).rglob("*") if path.is_file() and path.name != "secret"]
        yield Figure("F23", "hostile archives: files outside, or anywhere", len(archives), len(written))
        yield Figure("F23", "hostile archives that were not refused", len(archives), accepted)
        yield _downloads(Path(place) / "data")


def _refused(act: Callable[[], object]) -> bool:
    try:
        act()
    except InputError as error:
        return "\n" not in str(error)
    return False


def _unpack(data: bytes) -> dict[str, bytes]:
    return untar(data, {MEMBER: SIZE}, "archive")


def _only_what_was_asked_for(archives: dict[str, bytes]) -> int:
    """A link beside a good file is not followed: what comes back is the file's own content, as it should be."""
    return _unpack(archives["link, then a file through it"]) == {MEMBER: GOOD}


def _downloads(folder: Path) -> Figure:
    """A server that sends another file, too much, half of it, or nothing: nothing is kept."""
    data = gzip.compress(GOOD)
    digest = hashlib.sha256(data).hexdigest()
    answers = {"/good": data, "/other": b"other", "/long": data + bytes(1 << 20), "/half": data[:20], "/empty": b""}
    lost = 0
    with _server(answers) as place:
        bad = [f"{place}{name}" for name in (*list(answers)[1:], "/missing")] + ["file:///etc/passwd", "ftp://x/y", "x"]
        for number, url in enumerate(bad):
            path = folder / str(number)
            lost += not _refused(lambda path=path, url=url: fetch(path, [url], digest, 1000)) or path.exists()
        lost += fetch(folder / "good", [bad[0], f"{place}/good"], digest, 1000) != data
    lost += gunzip((folder / "good").read_bytes(), SIZE, "good") != GOOD
    lost += not _refused(lambda: check_digest(data + b"x", digest, "x"))
    lost += [path.name for path in folder.iterdir()] != ["good"]
    return Figure("F23", "downloads of wrong, long, half or missing files", len(bad) + 3, lost, "none was kept")


@contextmanager
def _server(answers: dict[str, bytes]) -> Iterator[str]:
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path)
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Length", str(len(found or b"")))
            self.end_headers()
            self.wfile.write(found or b"")

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
