"""A regression as a run's folder: run.json with the coefficients, the draws, the ledger; the manifest comes last."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from tacit.errors import InputError
from tacit.ledger import read_ledger
from tacit.regression.newton.plan import ReleasePlan
from tacit.regression.priors import Prior
from tacit.regression.problem import RegressionProblem
from tacit.regression.regression import Regression, SharedBudget
from tacit.regression.results.summary import Draws
from tacit.runs import RunFolder
from tacit.runs.facts import COEFFICIENTS, FORMAT
from tacit.storage.files import read_bytes, replace_file
from tacit.storage.json_files import read_json, write_json
from tacit.tables import Schema

T = TypeVar("T")
LEVEL = 0.95  # of the intervals in run.json; the draws give any other


@dataclass(frozen=True, slots=True)
class RegressionFacts:
    """What run.json says of a regression before a record is touched, as whoever goes on with it needs it.

    Args:
        contrasts: named before anything was seen.
        registry: the file in which the runs on this data are entered, seen from the folder.
        shared_ledger: the ledger of a budget that other runs share, seen from the folder.
        shared: its total, and this run's name there.
    """

    problem: RegressionProblem
    prior: Prior
    contrasts: tuple[str, ...] = ()
    registry: str | None = None
    shared_ledger: str | None = None
    shared: SharedBudget | None = None

    def to_json(self) -> dict[str, Any]:
        problem, schema = self.problem, self.problem.schema
        return {
            "format": FORMAT,
            "task": COEFFICIENTS,
            "target": problem.outcome,
            "classes": list(problem.levels) or None,
            "features": [column.name for column in problem.design.columns],
            "dataset": schema.dataset,
            "n_records": problem.size,
            "unit": "user" if problem.is_by_person else "record",
            "method": "noisy Newton",
            "model": f"{problem.family.name} regression",
            "epsilon": problem.epsilon,
            "delta": problem.delta,
            "settings": _settings(problem.plan, problem.reach),
            "warnings": [],
            "schema": schema.to_json(),
            "registry": self.registry,
            "shared_ledger": self.shared_ledger,
            "shared_epsilon": None if self.shared is None else self.shared.epsilon,
            "regression": problem.to_json()
            | {
                "prior": str(self.prior),
                "contrasts": list(self.contrasts),
                "run": None if self.shared is None else self.shared.run,
            },
        }

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> "RegressionFacts":
        said, total = facts["regression"], facts.get("shared_epsilon")
        shared = None if total is None else SharedBudget(float(total), str(said["run"]))
        problem = RegressionProblem(
            Schema.from_json(facts["schema"]), said["outcome"], facts["epsilon"], facts["delta"], said["family"],
            said["exposure"], tuple(said["interactions"]), shared is not None, said.get("assume_spread"),
        )  # fmt: skip
        return cls(
            problem, Prior.parse(said["prior"]), tuple(said["contrasts"]), facts.get("registry"),
            facts.get("shared_ledger"), shared,
        )  # fmt: skip


def _settings(plan: ReleasePlan, reach: float) -> list[dict[str, Any]]:
    shares = {name: share for stage in plan.stages for name, share in stage.items()}
    matrices = sum(share for name, share in shares.items() if name.endswith((" off", " on", " row")))
    return [
        {"name": "noise of all releases", "value": plan.multiplier,
         "why": "the least multiplier with which all of them stay within epsilon (pld)"},
        {"name": "stages", "value": len(plan.stages), "why": "a first estimate, corrections, and the last releases"},
        {"name": "share of matrices", "value": round(matrices, 3), "why": "curvatures decide what can be stated"},
        {"name": "reach", "value": reach, "why": "records longer than this weigh less: the declared box's mean length"},
    ]  # fmt: skip


def save_regression(folder: RunFolder, facts: RegressionFacts, found: Regression) -> None:
    """Write what was released and mark the run as finished."""
    scales = [None if math.isinf(unit) else 1 / unit for unit in found.problem.effect_units.tolist()]
    rows = [row.to_json() | {"scale": scale} for row, scale in zip(found.coefficients(LEVEL), scales, strict=True)]
    said = facts.to_json() | {
        "warnings": found.warnings,
        "coefficients": rows,
        "contrasts": [row.to_json() for text in facts.contrasts for row in found.contrast(text, LEVEL)],
        "references": found.problem.design.references,
    }
    said["regression"] |= {
        "doubt": found.doubt, "convergence": found.convergence, "lost": found.lost, "at_bounds": found.at_bounds,
    }  # fmt: skip
    if found.problem.spread is not None:
        said["regression"] |= {"assumptions": found.assumptions, "dropped": found.dropped}
    parts = {"draws": found.draws.values.astype(np.float32), "sampling": found.draws.sampling,
             "unclear": found.draws.unclear}  # fmt: skip
    replace_file(folder.posterior, save({name: np.ascontiguousarray(value) for name, value in parts.items()}))
    write_json(folder.facts, said)
    shared = folder.shared_ledger(facts)
    if shared is not None:
        folder.keep_shared_ledger(shared)
    folder.finish()


def read_facts(folder: RunFolder) -> RegressionFacts:
    """What was declared of a regression, finished or not."""
    return _understood(folder, RegressionFacts.from_json)


def read_regression(path: str | Path) -> Regression:
    """A finished regression, checked against its manifest and ledger."""
    folder = RunFolder(Path(path))
    if not folder.is_finished:
        raise InputError(
            f"{path} holds no finished regression; go on with the one that was begun: "
            f"tacit regress TABLE --resume --out {path}"
        )
    folder.check_finished()
    data = read_bytes(folder.posterior)
    if data is None:
        raise InputError(f"{path} is no run of tacit regress")
    return _understood(folder, lambda said: _regression(folder, said, load(data)))


def _regression(folder: RunFolder, said: dict[str, Any], parts: dict[str, Any]) -> Regression:
    facts, reached = RegressionFacts.from_json(said), said["regression"]
    values = parts["draws"].astype(np.float64)
    if values.shape[1:] != (len(facts.problem.names),):
        raise InputError(f"{folder.posterior} holds draws of other coefficients than {folder.facts} names")
    draws = Draws(facts.problem.names, values, parts["sampling"], parts["unclear"], facts.prior.kind != "flat")
    return Regression(
        facts.problem, facts.prior, draws, float(reached["doubt"]), float(reached["convergence"]),
        read_ledger(folder.path), int(reached.get("lost", 0)), float(reached.get("at_bounds", 0.0)),
        reached.get("dropped", ""),
    )  # fmt: skip


def _understood(folder: RunFolder, read: Callable[[dict[str, Any]], T]) -> T:
    """What run.json says, by ``read``; another run's, or a damaged one, is refused in one line."""
    found = read_json(folder.facts, FORMAT)
    if found is None or found.value("task") != COEFFICIENTS:
        raise InputError(f"{folder.path} is no run of tacit regress")
    try:
        return read(dict(found.content))
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, SafetensorError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{folder.facts} is damaged: {type(error).__name__} {error}") from error
