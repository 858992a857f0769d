"""A disk that notes every call and yields all that a real one may hold after a crash. It stands in for `Disk`.

What a crash may do is what POSIX leaves open, which is more than any one file system does:
- what was written since the last sync of a file is there up to any byte, or the file has grown and the rest is zeros;
- a name that was made, moved or removed since the last sync of its folder is as before or as after, each by itself;
- what was synced is there.
"""

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

Files = dict[Path, bytes]
FOLDER = -1


@dataclass(slots=True)
class Node:
    """A file: what a program sees, what is surely on disk, and what the disk may hold besides."""

    content: bytes = b""
    synced: bytes = b""
    written: list[bytes] = field(default_factory=list)  # the contents since the last sync, in order

    def change(self, content: bytes) -> None:
        self.content = content
        self.written.append(content)

    def sync(self) -> None:
        self.synced, self.written = self.content, []

    def after_crash(self) -> Iterator[bytes]:
        before = self.synced
        yield before
        for after in self.written:
            if len(after) > len(before):
                yield from _grown(before, after)
            else:
                yield after
            before = after


def _is_temporary(path: Path) -> bool:
    return path.suffix == ".new"


def _grown(before: bytes, after: bytes) -> Iterator[bytes]:
    """Every prefix of what was appended, and every prefix with zeros where the rest should be."""
    for end in range(len(before), len(after) + 1):
        yield after[:end]
        if end < len(after):
            yield after[:end] + bytes(len(after) - end)


@dataclass(slots=True)
class Name:
    """What a name stands for: a file's number, FOLDER, or None; on disk surely, and what else it may be there."""

    now: int | None = None
    synced: int | None = None
    since: list[int | None] = field(default_factory=list)

    def change(self, now: int | None) -> None:
        self.now = now
        self.since.append(now)

    def sync(self) -> None:
        self.synced, self.since = self.now, []


class CrashDisk:
    """Holds ``files`` in folders that are all there, or only the root if there are none.

    ``at_call`` comes before every call that changes something: a proof looks at :meth:`after_crash` there, or raises to
    see what a refusal does.
    """

    def __init__(self, root: Path, files: Files | None = None) -> None:
        self.root = root
        self.names: dict[Path, Name] = {root: Name(FOLDER, FOLDER)}
        self.nodes: list[Node] = []
        self.calls: list[str] = []
        self._open: dict[int, int] = {}
        self._numbers = iter(range(3, 1 << 30))
        self._locked: set[int] = set()
        self.released = 0  # how many steps the program on this disk has released
        for path, content in (files or {}).items():
            for folder in reversed(path.parents):
                if folder.is_relative_to(root):
                    self.names[folder] = Name(FOLDER, FOLDER)
            self.nodes.append(Node(content, content))
            self.names[path] = Name(len(self.nodes) - 1, len(self.nodes) - 1)

    def at_call(self, name: str) -> None:
        self.calls.append(name)

    # what a program sees

    def make_folder(self, path: Path) -> bool:
        self.at_call("make_folder")
        if self._now(path) == FOLDER:
            return False
        self._need_folder(path.parent)
        self.names.setdefault(path, Name()).change(FOLDER)
        return True

    def open_to_append(self, path: Path, *, create: bool) -> int:
        self.at_call("open_to_append")
        if not create and self._now(path) is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return self._opened(path, self._made(path))

    def open_new(self, path: Path) -> int:
        self.at_call("open_new")
        node = self._made(path)
        if self.nodes[node].content:
            self.nodes[node].change(b"")
        return self._opened(path, node)

    def open_to_read(self, path: Path) -> int:
        node = self._now(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return self._opened(path, node)

    def lock(self, file: int, path: Path) -> None:
        if self._open[file] in self._locked:
            raise BlockingIOError(errno.EWOULDBLOCK, "another writer")
        self._locked.add(self._open[file])

    def read(self, file: int, count: int, offset: int) -> bytes:
        return self._node(file).content[offset : offset + count]

    def write(self, file: int, data: bytes | memoryview) -> int:
        self.at_call("write")
        node = self._node(file)
        node.change(node.content + bytes(data))
        return len(data)

    def truncate(self, file: int, size: int) -> None:
        self.at_call("truncate")
        self._node(file).change(self._node(file).content[:size])

    def sync_data(self, file: int) -> None:
        self.at_call("sync_data")
        self._node(file).sync()

    def close(self, file: int) -> None:
        self._locked.discard(self._open.pop(file))

    def rename(self, source: Path, target: Path) -> None:
        self.at_call("rename")
        self.names.setdefault(target, Name()).change(self._now(source))
        self.names[source].change(None)

    def remove(self, path: Path) -> None:
        self.at_call("remove")
        if self._now(path) is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        self.names[path].change(None)

    def sync_folder(self, path: Path) -> None:
        self.at_call("sync_folder")
        for inside, name in self.names.items():
            if inside.parent == path and inside != self.root:
                name.sync()

    # what is there after a crash

    def after_crash(self) -> Iterator[Files]:
        """Every legal state of the disk, should the machine stop now. Names and contents vary apart from each other."""
        paths = [path for path in self.names if path != self.root]
        for chosen in product(*(self._may_be(path) for path in paths)):
            there = {path: node for path, node in zip(paths, chosen, strict=True) if node is not None}
            files = {path: node for path, node in there.items() if node != FOLDER and self._reached(path, there)}
            named = sorted({node for path, node in files.items() if not _is_temporary(path)})
            left = {self.nodes[node].content for node in files.values() if node not in named}
            for contents in product(*(self.nodes[node].after_crash() for node in named)):
                held = dict(zip(named, contents, strict=True))
                yield {path: held.get(node, next(iter(left), b"")) for path, node in files.items()}

    def _may_be(self, path: Path) -> list[int | None]:
        """What a name may stand for; of a temporary one, which nobody reads, only the first and the last."""
        name = self.names[path]
        since = name.since[-1:] if _is_temporary(path) else name.since
        return list(dict.fromkeys([name.synced, *since]))

    def _reached(self, path: Path, there: dict[Path, int]) -> bool:
        return all(there.get(folder) == FOLDER for folder in path.parents if folder.is_relative_to(self.root)
                   and folder != self.root)  # fmt: skip

    def _now(self, path: Path) -> int | None:
        return self.names[path].now if path in self.names else None

    def _need_folder(self, path: Path) -> None:
        if self._now(path) != FOLDER:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    def _made(self, path: Path) -> int:
        self._need_folder(path.parent)
        node = self._now(path)
        if node is None:
            self.nodes.append(Node())
            node = len(self.nodes) - 1
            self.names.setdefault(path, Name()).change(node)
        return node

    def _opened(self, path: Path, node: int) -> int:
        if node == FOLDER:
            raise IsADirectoryError(errno.EISDIR, "Is a directory")
        number = next(self._numbers)
        self._open[number] = node
        return number

    def _node(self, file: int) -> Node:
        return self.nodes[self._open[file]]
