"""F31: every command on a disk that is too small, of 21 sizes, and in a folder that cannot be written.

The disk is a real one in main memory (tmpfs) in a mount namespace of this process, which ends with it. Where the system
allows no such mount, a limit on the size of files stops writes in the middle instead.
"""

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import chdir, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from reliability.every_command import COMMANDS, STREAMS, Before, Command, prepare, taken_up, typed, unfinished
from reliability.figures import Figure, tries
from reliability.processes import answer, in_its_own_process
from reliability.small_table import Said, short_runs
from tacit.commands.demo import command as demo

SIZES = 21
PAGE = 4096  # what a file takes at least


def prove(effort: float) -> Iterable[Figure]:
    ways = (["unshare", "--mount"], ["unshare", "--mount", "--user", "--map-root-user"])
    return in_its_own_process("reliability.f31_full_disks", effort, next(filter(_may_mount, ways), []))


def _may_mount(before: list[str]) -> bool:
    with tempfile.TemporaryDirectory() as place, suppress(OSError):
        mount = subprocess.run([*before, "mount", "-t", "tmpfs", "none", place], capture_output=True)
        if not before and not mount.returncode:
            subprocess.run(["umount", place], check=True)  # noqa: S607
        return mount.returncode == 0
    return False


@dataclass(frozen=True, slots=True)
class Mount:
    """A disk of its own that holds a copy of what was prepared."""

    place: Path

    def fill(self, template: Path) -> None:
        self.empty()
        _mount("-t", "tmpfs", "none", self.place)
        shutil.copytree(template, self.place, dirs_exist_ok=True)

    @property
    def used(self) -> int:
        found = os.statvfs(self.place)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def leave_room(self, pages: int | None) -> Callable[[], object]:
        """So many pages, or all there is. What comes back is to be done in the process that runs the command."""
        _mount("-o", f"remount,size={'50%' if pages is None else self.used + PAGE * pages}", self.place)
        return lambda: None

    def forbid(self) -> Callable[[], object]:
        _mount("-o", "remount,ro", self.place)
        return lambda: None

    def empty(self) -> None:
        while os.path.ismount(self.place):
            subprocess.run(["umount", self.place], check=True)  # noqa: S607


@dataclass(frozen=True, slots=True)
class Limits:
    """The same where nothing can be mounted: files of the command may not grow beyond a size."""

    place: Path

    def fill(self, template: Path) -> None:
        self.empty()
        shutil.copytree(template, self.place, dirs_exist_ok=True)

    @property
    def used(self) -> int:
        return sum(path.stat().st_size for path in self.place.rglob("*") if path.is_file())

    def leave_room(self, pages: int | None) -> Callable[[], object]:
        most = resource.RLIM_INFINITY if pages is None else 1 + PAGE * pages // 8

        def limit() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

        return limit

    def forbid(self) -> Callable[[], object]:
        for folder in (self.place, *self.place.rglob("*")):
            if folder.is_dir():
                folder.chmod(0o555)
        return lambda: None

    def empty(self) -> None:
        for path in (self.place, *self.place.rglob("*")):
            if path.is_dir():
                path.chmod(0o755)
        for path in self.place.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _mount(*words: object) -> None:
    subprocess.run(["mount", *map(str, words)], check=True)  # noqa: S607


Disk = Mount | Limits


def full(disk: Disk, template: Path, notes: Path, commands: list[Command], sizes: int) -> Figure:
    """Whatever the room: success, or one line and nothing lost; with room again it succeeds."""
    times, failed, wrong = 0, 0, []
    for command in commands:
        need = _need(disk, template, notes, command)
        for pages in sorted({round(need * part / (sizes - 1)) for part in range(sizes)}):
            disk.fill(template)
            with chdir(disk.place):
                said, found = _try(disk, command, notes, pages)
            times, failed = times + 1, failed + (said != 0)
            wrong += [f"tacit {command.name}, {pages} pages: {found}"] if found else []
    how = "in main memory" if isinstance(disk, Mount) else "by a limit on the size of files"
    reached = "; ".join(wrong[:2]) or f"{len(commands)} commands, {failed} times too small, full {how}"
    return Figure("F31", "commands on a disk that is too small", times, len(wrong), reached,
                  "one line, exit code 1 or 2, nothing half-written or overwritten")  # fmt: skip


def _need(disk: Disk, template: Path, notes: Path, command: Command) -> int:
    """How many pages the command takes, and one more; at least as many as there are sizes to try."""
    disk.fill(template)
    with chdir(disk.place):
        used, said = disk.used, _typed(command, command.words, notes)
        if found := f"exit {said.code}: {said.err}" if said.code else unfinished(command):
            raise RuntimeError(f"tacit {command.name} with room: {found}")
        return max(SIZES - 1, (disk.used - used) // PAGE + 1)


def _try(disk: Disk, command: Command, notes: Path, pages: int) -> tuple[int, str]:
    before = Before.here()
    said = _typed(command, command.words, notes, disk.leave_room(pages))
    disk.leave_room(None)
    if found := said.fault or before.damage(command, failed=said.code != 0):
        return said.code, found
    if said.code and (then := _typed(command, taken_up(command), notes)).code:
        return said.code, f"with room again: {then.err}"
    return said.code, unfinished(command)


def _typed(command: Command, words: tuple[str, ...], notes: Path, before: Callable[[], object] = lambda: None) -> Said:
    """What a command makes goes to the disk that may be full: a file, or standard output, as after ``>``."""
    return typed(words, (notes if command.makes else Path(STREAMS)) / "out", notes / "err", before)


def read_only(disk: Disk, template: Path, notes: Path, commands: list[Command]) -> Figure:
    """What only reads succeeds; what writes says in one line that it cannot."""
    wrong = []
    for command in commands:
        disk.fill(template)
        with chdir(disk.place):
            before, forbid = Before.here(), disk.forbid()
            said = typed(command.words, notes / "out", notes / "err", forbid)
            found = said.fault or before.damage(command, failed=True)
            expected = (1, 2) if command.makes else (0,)
            if not found and said.code not in expected:
                found = f"exit {said.code}: {said.err}"
            wrong += [f"tacit {command.name}: {found}"] if found else []
    return Figure("F31", "commands in a folder that cannot be written", len(commands), len(wrong),
                  "; ".join(wrong[:2]), "one line, nothing changed; what only reads succeeds")  # fmt: skip


def serve(effort: float) -> None:
    torch.set_num_threads(1)
    demo.SPLITS = 2  # the splits after the first only make an average
    quick = [command for command in COMMANDS if effort > 0.05 or command.seconds < 1]
    commands = random.Random(31).sample(quick, min(len(quick), tries(len(quick), 20 * effort, least=4)))
    sizes = max(2, round(SIZES * min(1, 10 * effort)))
    with tempfile.TemporaryDirectory() as name, short_runs():
        place = Path(name)
        for folder in ("template", "disk", "notes"):
            (place / folder).mkdir()
        prepare(place / "template")
        disk = Mount(place / "disk") if _may_mount([]) else Limits(place / "disk")
        try:
            figures = [full(disk, place / "template", place / "notes", commands, sizes)]
            if isinstance(disk, Mount) or os.getuid():  # to root no folder is closed that is not mounted so
                figures.append(read_only(disk, place / "template", place / "notes", commands))
            answer(figures)
        finally:
            disk.empty()


if __name__ == "__main__":
    serve(float(sys.argv[1]))
