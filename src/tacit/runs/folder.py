"""A run's folder: the ledger, the posterior, and ``run.json``, which says in public facts what was done and why.

ledger.jsonl             what was released; the guarantee follows from it
run.json                 task, target, settings with their reasons, schema: public facts only
posterior.safetensors    what was learned
evaluation.json          how good it is on data that was declared public
artefacts.json           the hashes of these, written last: it alone says that the run is finished
checkpoint.safetensors   while the run goes on
hold-out.private         which records are kept from training, while the run goes on
asking.private           what is asked of the table and the key of its noise, until the answers are there
tuning*.private          how far a search is, and its best trial, while it goes on
evidence.*.safetensors   private, if asked for; readable by the owner alone
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any, Protocol

from tacit.errors import InputError, TacitError
from tacit.ledger import RegisteredLedger
from tacit.ledger.manifest import MANIFEST, check_if_finished, plain_name, read_manifest, write_manifest
from tacit.runs.facts import COEFFICIENTS, FORMAT, QUERIES, RunFacts
from tacit.storage import locks
from tacit.storage.append_only import head_path
from tacit.storage.files import is_there, make_folders, read_bytes, reason_of, replace_file, temporary_path
from tacit.storage.json_files import read_json, write_json


class NamesLedger(Protocol):
    """Facts that say where a run is charged: a ledger that it shares, and a registry, both seen from the folder."""

    @property
    def shared_ledger(self) -> str | None: ...

    @property
    def registry(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where the parts of a run lie."""

    path: Path

    @property
    def ledger(self) -> Path:
        return self.path / "ledger.jsonl"

    @property
    def facts(self) -> Path:
        return self.path / "run.json"

    @property
    def posterior(self) -> Path:
        return self.path / "posterior.safetensors"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    @property
    def hold_out(self) -> Path:
        return self.path / "hold-out.private"

    @property
    def asking(self) -> Path:
        return self.path / "asking.private"

    @property
    def tuning(self) -> Path:
        return self.path / "tuning.private"

    def best_trial(self, number: int) -> Path:
        return self.path / f"tuning-{number}.private"

    @property
    def trial(self) -> Path:
        """A folder for the ledger of the trial that is being run."""
        return self.path / "tuning-trial.private"

    @property
    def evaluation(self) -> Path:
        return self.path / "evaluation.json"

    @property
    def is_finished(self) -> bool:
        return (self.path / MANIFEST).exists()

    def check_free(self) -> None:
        """Refuse a folder that holds a run: training again under its ledger would rightly be charged on top.

        Facts alone are no run: it was stopped before anything was charged to a ledger of its own.
        """
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is not a folder; name another with --out")
        if self.is_finished:
            raise InputError(f"{self.path} holds a finished run; name another folder with --out, or remove it")
        if any(path.exists() for path in (self.ledger, self.checkpoint, self.posterior, self.asking)):
            if self._task == QUERIES:
                raise InputError(
                    f"{self.path} holds queries that were stopped; go on with --resume, or name another folder"
                )
            raise InputError(
                f"{self.path} holds a run that was not finished; go on with --resume, or name another folder"
            )

    def check_unfinished(self) -> None:
        if self.is_finished:
            raise InputError(f"{self.path} holds a finished run; there is nothing to go on with")

    @contextmanager
    def claimed(self, *, new: bool) -> Iterator[None]:
        """The folder for this process alone, from the first file of the run to the last.

        A new run that is refused before it has a ledger takes its facts, and the folder if nothing else is in it, away
        again: they are surely its own. A ledger is never removed, not even one without a charge: somebody may be
        about to charge it.
        """
        with ExitStack() as held:
            try:
                make_folders(self.path)
                held.enter_context(locks.locked_folder(self.path))
            except BlockingIOError as error:
                raise InputError(f"{self.path} is in use by {error.strerror}") from error
            except OSError as error:
                raise InputError(f"{self.path} cannot be used for a run: {reason_of(error)}") from error
            held.callback(self._remove_if_empty)
            if new:
                self.check_free()
            else:
                self.check_unfinished()
            try:
                yield
            except TacitError:
                if new and not any(path.exists() for path in (self.ledger, self.checkpoint, self.asking)):
                    self.facts.unlink(missing_ok=True)
                    self.hold_out.unlink(missing_ok=True)
                    self.forget_search()
                raise

    def check_room(self, size: int) -> None:
        """Refuse, before a charge, a disk without room for what it pays for: so many bytes are written and removed."""
        tried = self.path / "room"
        try:
            replace_file(tried, bytes(size))
        finally:
            for path in (tried, temporary_path(tried)):
                path.unlink(missing_ok=True)

    def _remove_if_empty(self) -> None:
        if all(path == locks.note_path(self.path) for path in self.path.iterdir()):
            locks.note_path(self.path).unlink(missing_ok=True)
            self.path.rmdir()

    def name_of(self, file: Path) -> str:
        """How run.json names a shared ledger or a registry: from the folder if it lies in it, else by its whole path.

        So a run goes on under the same ones wherever it is taken up from.
        """
        whole = file.absolute()
        return str(whole.relative_to(self.path.absolute()) if whole.is_relative_to(self.path.absolute()) else whole)

    def shared_ledger(self, facts: NamesLedger) -> Path | None:
        """The ledger that the run shares with others."""
        return None if facts.shared_ledger is None else self.path / facts.shared_ledger

    def place_of_ledger(self, facts: NamesLedger) -> Path | RegisteredLedger:
        """The ledger that is charged, its own or a shared one, with the registry that it is entered in."""
        path = self.shared_ledger(facts) or self.ledger
        return path if facts.registry is None else RegisteredLedger(path, self.path / facts.registry)

    def finish(self) -> None:
        """Mark the run as finished: from here on its files are what they are. The checkpoint has served its time."""
        made = (self.facts, self.posterior, self.evaluation)
        write_manifest(self.path, [path.name for path in made if path.exists()])
        for path in (self.checkpoint, self.hold_out, self.asking):
            path.unlink(missing_ok=True)
            temporary_path(path).unlink(missing_ok=True)  # a kill may have left a part of the last one
        if is_there(self.tuning):
            self.forget_search()
            self._equalise_times()

    def forget_search(self, *kept: Path) -> None:
        """Remove what a search keeps to itself, but for what it goes on with."""
        rmtree(self.trial, ignore_errors=True)
        for path in self.path.glob("tuning*.private*"):
            if path not in kept:
                path.unlink(missing_ok=True)

    def _equalise_times(self) -> None:
        """Give all files one time: that of the last minus that of the first would tell how many trials there were."""
        now = time.time()
        for path in self.path.iterdir():
            os.utime(path, (now, now))

    def write_facts(self, facts: RunFacts) -> None:
        write_json(self.facts, facts.to_json())

    def write_evaluation(self, found: dict[str, Any]) -> None:
        write_json(self.evaluation, found)

    def keep_shared_ledger(self, shared: Path) -> None:
        """Keep a shared ledger as it stands, with its head, so that the run can be accounted for.

        The head is read first: other runs go on charging, and a head that is ahead of its ledger looks like a rollback.
        """
        head, data = read_bytes(head_path(shared)), read_bytes(shared)
        if head is None or data is None:
            raise InputError(
                f"the shared ledger {shared} was removed while the run went on; put it back and use --resume"
            )
        replace_file(self.ledger, data)
        replace_file(head_path(self.ledger), head)

    def read_files(self) -> dict[str, bytes]:
        """All files of a finished run, for :meth:`write_files`."""
        self.check_finished()
        names = [self.ledger.name, head_path(self.ledger).name, *read_manifest(self.path).files, MANIFEST]
        found = {name: read_bytes(self.path / name) for name in names}
        return {name: data for name, data in found.items() if data is not None}

    def write_files(self, files: Mapping[str, bytes]) -> None:
        """Put a finished run into this folder, which must be free; the mark of a finished one comes last."""
        with self.claimed(new=True):
            for name, data in files.items():
                replace_file(self.path / plain_name(name), data)

    def read_facts(self) -> RunFacts:
        """What was declared of a run on a table; a folder that holds none is refused in one line."""
        found = read_json(self.facts, FORMAT)
        if found is None:
            raise InputError(f"{self.path} is no run of tacit train: it has no run.json")
        try:
            return RunFacts.from_json(found.content)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{self.facts} is damaged: {type(error).__name__} {error}") from error

    def read_evaluation(self) -> dict[str, Any] | None:
        """How good the run was on public data, as it was written."""
        found = read_json(self.evaluation, FORMAT)
        return None if found is None else dict(found.content)

    @property
    def _task(self) -> str | None:
        """What the run is for, as far as run.json can be read."""
        try:
            found = read_json(self.facts, FORMAT)
        except InputError:
            return None
        if found is None:
            return None
        return "search" if found.value("search") is not None else str(found.value("task"))

    def check_finished(self) -> None:
        """Refuse a run that was not finished, and one whose files are not those that it wrote."""
        if not self.is_finished:
            command = {COEFFICIENTS: "regress", "search": "tune", QUERIES: "ask"}.get(self._task or "", "train")
            raise InputError(
                f"{self.path} holds no finished run; go on with tacit {command} TABLE --resume --out {self.path}"
            )
        check_if_finished(self.path)
