"""A run's folder: the ledger, the posterior, and ``run.json``, which says in public facts what was done and why.

ledger.jsonl             what was released; the guarantee follows from it
run.json                 task, target, settings with their reasons, schema: public facts only
posterior.safetensors    what was learned
evaluation.json          how good it is on data that was declared public
artefacts.json           the hashes of these, written last: it alone says that the run is finished
checkpoint.safetensors   while the run goes on
evidence.*.safetensors   private, if asked for; readable by the owner alone
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.errors import InputError, TacitError
from tacit.ledger import RegisteredLedger
from tacit.ledger.manifest import MANIFEST, check_if_finished, write_manifest
from tacit.posteriors import Posterior, load_posterior
from tacit.runs.fit import Fitted
from tacit.runs.problem import Problem
from tacit.runs.spread import Spread
from tacit.storage import locks
from tacit.storage.files import make_folders, reason_of, replace_file, temporary_path
from tacit.tables import Schema

FORMAT = 1


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
        if self.ledger.exists() or self.checkpoint.exists() or self.posterior.exists():
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
                held.enter_context(locks.holding(self.path))
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
                if new and not (self.ledger.exists() or self.checkpoint.exists()):
                    self.facts.unlink(missing_ok=True)
                raise

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

    def shared_ledger(self, facts: "RunFacts") -> Path | None:
        """The ledger that the run shares with others."""
        return None if facts.shared_ledger is None else self.path / facts.shared_ledger

    def place_of_ledger(self, facts: "RunFacts") -> Path | RegisteredLedger:
        """The ledger that is charged, its own or a shared one, with the registry that it is entered in."""
        path = self.shared_ledger(facts) or self.ledger
        return path if facts.registry is None else RegisteredLedger(path, self.path / facts.registry)

    def finish(self) -> None:
        """Mark the run as finished: from here on its files are what they are. The checkpoint has served its time."""
        made = (self.facts, self.posterior, self.evaluation)
        write_manifest(self.path, [path.name for path in made if path.exists()])
        for path in (self.checkpoint, temporary_path(self.checkpoint)):  # a kill may have left a part of the last one
            path.unlink(missing_ok=True)

    def write_json(self, path: Path, facts: dict[str, Any]) -> None:
        replace_file(path, (json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode())


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What ``run.json`` holds.

    ``shared_ledger`` names the ledger of a budget that other runs share, seen from the folder, and ``public_test`` the
    file to evaluate on: whoever goes on with the run needs them. A release leaves the paths out.

    Args:
        registry: the file in which the runs on this data are entered, seen from the folder.
        evidence: whether private evidence is gathered beside the ledger.
        steps: how many the posterior comes from, once there is one.
        spread_begun: a histogram of residuals was about to be drawn; without ``spread`` it was lost.
    """

    problem: Problem
    effective_temperature: float | None = None
    spread: Spread | None = None
    seconds: float | None = None
    shared_ledger: str | None = None
    shared_epsilon: float | None = None
    public_test: str | None = None
    steps: int | None = None
    spread_begun: bool = False
    registry: str | None = None
    evidence: bool = False

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to expect of the model; that crashes cut it short follows from them, not from the data."""
        settings, said = self.problem.recipe, list(self.problem.recipe.warnings)
        if self.steps is not None and self.steps < settings.steps:
            why = "stops lost steps that were paid for" + (", or other runs spent it" if self.shared_ledger else "")
            said.append(f"the budget ended at step {self.steps} of {settings.steps}: {why}")
        if self.steps is not None and settings.spread_noise is not None and self.spread is None:
            said.append("a stop lost the histogram of residuals: intervals are as wide as the declared range")
        return tuple(said)

    def to_json(self) -> dict[str, Any]:
        problem = self.problem
        schema, settings = problem.schema, problem.recipe
        spread = self.spread and {"stddevs": list(self.spread.stddevs), "weights": list(self.spread.weights)}
        return {
            "format": FORMAT,
            "task": problem.task,
            "target": problem.target,
            "classes": None if problem.classes is None else list(problem.classes),
            "features": [column.name for column in schema.features(problem.target)],
            "dataset": schema.dataset,
            "n_records": schema.units,
            "unit": "record" if schema.unit == "record" else "user",
            "method": problem.method,
            "model": problem.model,
            "epsilon": problem.epsilon,
            "delta": problem.delta,
            "effective_temperature": self.effective_temperature,
            "settings": [setting.to_json() for setting in settings.settings],
            "warnings": list(self.warnings),
            "schema": schema.to_json(),
            "seconds": self.seconds,
            "spread": spread,
            "shared_ledger": self.shared_ledger,
            "shared_epsilon": self.shared_epsilon,
            "public_test": self.public_test,
            "steps": self.steps,
            "spread_begun": self.spread_begun,
            "registry": self.registry,
            "evidence": self.evidence,
        }

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> "RunFacts":
        problem = Problem(
            Schema.from_json(facts["schema"]), facts["target"], facts["epsilon"], facts["delta"], facts["method"],
            facts["model"], shared=facts.get("shared_ledger") is not None,
        )  # fmt: skip
        known = {name: _typed(facts, name, kinds) for name, kinds in _KINDS.items()}
        spread = facts.get("spread") or None
        spread = spread and Spread(tuple(spread["stddevs"]), tuple(spread["weights"]))
        return cls(problem, spread=spread, **known)

    def finished(self, fitted: Fitted, seconds: float) -> "RunFacts":
        return replace(
            self,
            effective_temperature=fitted.effective_temperature,
            spread=fitted.spread,
            seconds=round(seconds, 1),
            steps=fitted.steps,
        )


_KINDS: dict[str, tuple[type, ...]] = {
    "effective_temperature": (int, float),
    "seconds": (int, float),
    "shared_ledger": (str,),
    "shared_epsilon": (int, float),
    "public_test": (str,),
    "steps": (int,),
    "spread_begun": (bool,),
    "registry": (str,),
    "evidence": (bool,),
}


def _typed(facts: dict[str, Any], name: str, kinds: tuple[type, ...]) -> Any:
    """A fact of its kind, or none; the file may have been changed by hand."""
    found = facts.get(name, False if kinds == (bool,) else None)
    if found is not None and type(found) not in kinds:
        raise TypeError(f"{name} is {found!r}")
    return found


def read_run(path: str | Path) -> RunFacts:
    """The public facts of a run; a folder that is none is refused in one line."""
    folder = RunFolder(Path(path))
    try:
        facts = json.loads(folder.facts.read_text(encoding="utf-8"))
        if facts["format"] != FORMAT:
            raise InputError(f"{folder.facts} has format {facts['format']!r}, this version reads {FORMAT}")
        return RunFacts.from_json(facts)
    except FileNotFoundError as error:
        raise InputError(f"{path} is no run of tacit train: it has no run.json") from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{folder.facts} is damaged: {type(error).__name__} {error}") from error


def read_posterior(path: str | Path) -> Posterior:
    folder = RunFolder(Path(path))
    if not folder.is_finished:
        raise InputError(f"{path} holds no finished run; go on with tacit train --resume --out {path}")
    check_if_finished(folder.path)
    return load_posterior(folder.posterior)
