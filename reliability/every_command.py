"""Every command of `tacit`, as it is typed in a folder with a table and runs, and what it may leave there.

All names are relative: a proof copies the folder to a disk of its choice and goes there.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reliability.f30_writes import Killed, MortalDisk, Trial
from reliability.processes import ended, forked
from reliability.small_table import Said, SmallTable, fault_of_run, tacit
from tacit.commands import main
from tacit.ledger import read_ledger

STREAMS = "streams"  # a folder for standard output and temporary files


@dataclass(frozen=True, slots=True)
class Command:
    """One way to use the command line.

    Args:
        words: what is typed.
        makes: the file or folder that is there afterwards; empty if all goes to standard output.
        adds_to: a folder whose ledger it may add to.
        resumes: a run that it leaves unfinished when it fails, to be completed with ``--resume``.
        seconds: about how long it takes; few of the slow ones are tried where a proof is to be short.
    """

    words: tuple[str, ...]
    makes: str = ""
    adds_to: str = ""
    resumes: str = ""
    seconds: float = 0.2

    @property
    def name(self) -> str:
        return " ".join(self.words[:2])


_TRAIN = ("train", "private.csv", "--epsilon", "2", "--public-test", "test.csv")
_REGRESS = ("regress", "private.csv", "--epsilon", "2", "--out", "new", "--schema")
COMMANDS = [
    Command((*_TRAIN, "--schema", "flag.toml", "--out", "new"), "new", resumes="new"),
    Command((*_TRAIN, "--schema", "number.toml", "--out", "new"), "new", resumes="new"),
    Command((*_TRAIN, "--schema", "number.toml", "--out", "new", "--bayesian-evidence"), "new", resumes="new"),
    Command((*_TRAIN, "--schema", "flag.toml", "--out", "new", "--budget", "all.jsonl", "--budget-epsilon", "4"),
            "new", resumes="new"),
    Command(("train", "private.csv", "--resume", "--out", "stopped"), "stopped/artefacts.json", "stopped", "stopped"),
    Command((*_TRAIN, "--schema", "flag.toml", "--out", "new", "--hold-out", "20%"), "new", resumes="new"),
    Command((*_REGRESS, "flag.toml"), "new", resumes="new"),
    Command((*_REGRESS, "number.toml", "--budget", "all.jsonl", "--budget-epsilon", "4"), "new", resumes="new"),
    Command(("tune", "private.csv", "--epsilon", "2", "--schema", "flag.toml", "--out", "new"), "new", resumes="new",
            seconds=3),
    Command(("ask", "private.csv", "count", "--schema", "flag.toml", "--epsilon", "1", "--out", "new"), "new"),
    Command(("summary", "run")),
    Command(("summary", "regression", "--json")),
    Command(("check", "private.csv", "--schema", "flag.toml", "--public-test", "test.csv")),
    Command(("predict", "run", "test.csv", "--out", "predictions.csv"), "predictions.csv"),
    Command(("predict", "run", "test.csv", "--out", "predictions.npz"), "predictions.npz"),
    Command(("report", "run"), "run/report.html"),
    Command(("report", "run", "--format", "md")),
    Command(("report", "run", "--format", "json", "--out", "report.json"), "report.json"),
    Command(("release", "run", "--out", "bundle"), "bundle", "run"),
    Command(("release", "run", "--out", "bundle.tar.gz"), "bundle.tar.gz", "run"),
    Command(("release", "--check", "received")),
    Command(("schema", "private.csv", "--out", "draft.toml"), "draft.toml"),
    Command(("schema", "private.csv", "--from-values")),
    Command(("account", "run", "--json")),
    Command(("account", "run", "--plot", "curve.svg"), "curve.svg", seconds=1),
    Command(("ledger", "show", "run")),
    Command(("ledger", "verify", "run")),
    Command(("ledger", "head", "run")),
    Command(("calibrate", "--epsilon", "2", "--poisson", "0.01", "--steps", "100", "--json")),
    Command(("reproduce", "general_approach/sampling", "--out", "paper"), "paper/results.json", seconds=1),
    Command(("reproduce", "--list")),
    Command(("demo", "--out", "demo"), "demo", seconds=4),
    Command(("audit", "run", "--json"), seconds=15),
]  # fmt: skip


def prepare(folder: Path) -> None:
    """A table, finished runs, one that was stopped, and a received bundle."""
    table = SmallTable.write(folder)
    regress = ("regress", table.private, "--schema", table.schema("flag"), "--epsilon", "2")
    for words in (
        table.train("flag", folder / "run"),
        (*regress, "--out", folder / "regression"),
        ("release", folder / "run", "--out", folder / "received"),
    ):
        if (said := tacit(*words)).code:
            raise RuntimeError(said.err)
    stopped = Trial(table, "number", False, "stopped")
    try:
        stopped.start(MortalDisk(60))
    except Killed:
        stopped.out.rename(folder / "stopped")
    (folder / STREAMS).mkdir()


def typed(words: tuple[str, ...], out: Path, err: Path, before: Callable[[], object] = lambda: None) -> Said:
    """What a real process of this command says here; its two streams go to files, as in a shell."""
    for path in (out, err):
        path.touch()

    def command() -> int:
        for stream, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_TRUNC), stream)
        tempfile.tempdir = str(out.parent.absolute())
        before()
        try:
            main(words)
        except SystemExit as end:
            return int(end.code or 0)
        return 98

    code = ended(forked(command))
    return Said(code, out.read_text(errors="replace"), err.read_text(errors="replace"))


@dataclass(frozen=True, slots=True)
class Before:
    """What was there: to be as it was afterwards, but for what the command adds to."""

    files: dict[str, bytes]
    steps: dict[str, int]

    @classmethod
    def here(cls) -> "Before":
        ledgers = [path.parent for path in Path().glob("*/ledger.jsonl")]
        return cls(_files(), {folder.name: read_ledger(folder).steps for folder in ledgers})

    def damage(self, command: Command, failed: bool) -> str:
        """What a command changed here that it may not: other files at any time, anything new when it failed."""
        now = _files()
        own = tuple(f"{name}/" for name in (command.adds_to, command.resumes) if name)
        changed = [name for name, data in self.files.items() if now.get(name) != data and not name.startswith(own)]
        if changed:
            return f"{changed[0]} was changed"
        if any(read_ledger(Path(folder)).steps < steps for folder, steps in self.steps.items()):
            return "charges are gone"
        made = {name: data for name, data in now.items() if name not in self.files}
        left = [name for name in made if not name.startswith(self._allowed(command, failed, own))]
        known = (".jsonl", ".private")  # lines that may end anywhere, and bits
        half = [name for name, data in made.items() if not name.endswith(known) and not _is_whole(data)]
        return f"{left[0]} is left" if left else f"{half[0]} is half written" if half else ""

    def _allowed(self, command: Command, failed: bool, own: tuple[str, ...]) -> tuple[str, ...]:
        """A run that can be taken up may stay unfinished; a demo or a paper is left as far as it came."""
        several = command.words[0] in ("demo", "reproduce")
        made = (command.makes.split("/")[0],) if command.makes and (several or not failed) else ()
        return (*own, *made, "all.jsonl") if command.resumes else (*own, *made)


def _files() -> dict[str, bytes]:
    """All but standard output, temporary files, and the notes of who holds a lock."""
    return {
        str(path): path.read_bytes()
        for path in sorted(Path().rglob("*"))
        if path.is_file() and path.suffix != ".lock" and path.parts[0] != STREAMS
    }


def _is_whole(data: bytes) -> bool:
    """What is written whole ends as its kind does (a line, an object, a picture, an archive), or is a model."""
    ends = (b"\n", b"}", b">", b"IEND\xaeB`\x82")
    return data.endswith(ends) or data[:2] in (b"PK", b"\x1f\x8b") or data[8:9] == b"{"


def unfinished(command: Command) -> str:
    """What keeps the command's work from being whole, now that it has succeeded; runs are released and verified."""
    if command.makes and not Path(command.makes).exists():
        return f"{command.makes} is not there"
    if command.resumes:
        out = Path(command.resumes).absolute()
        used = ("summary", out) if command.words[0] == "regress" else ()
        return fault_of_run(out, Path("test.csv"), 4.0, *used)
    if command.words[0] == "release" and command.makes:
        return tacit("release", "--check", command.makes).err
    return ""


def taken_up(command: Command) -> tuple[str, ...]:
    """What is typed when there is room again."""
    if command.words[0] == "demo":
        shutil.rmtree("demo", ignore_errors=True)  # as it says
    run = Path(command.resumes or "none")
    ledger = Path("all.jsonl") if "--budget" in command.words else run / "ledger.jsonl"
    begun = "checkpoint.safetensors" if command.words[0] == "regress" else "run.json"
    if ledger.exists() and (run / begun).exists() and not (run / "artefacts.json").exists():
        return command.words[0], "private.csv", "--resume", "--out", command.resumes
    return command.words
