"""A regression as a run's folder: run.json with the coefficients, the draws, the ledger; the manifest comes last."""

import math
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from tacit.errors import InputError
from tacit.ledger import read_ledger
from tacit.regression.newton.plan import ReleasePlan
from tacit.regression.priors import Prior
from tacit.regression.problem import RegressionProblem
from tacit.regression.regression import Regression
from tacit.regression.results.summary import Draws
from tacit.runs import RunFolder
from tacit.runs.facts import COEFFICIENTS, FORMAT
from tacit.storage.files import read_bytes, replace_file
from tacit.storage.json_files import read_json, write_json
from tacit.tables import Schema

LEVEL = 0.95  # of the intervals in run.json; the draws give any other


def declared(problem: RegressionProblem, prior: Prior, contrasts: tuple[str, ...]) -> dict[str, Any]:
    """What run.json says before a record is touched."""
    schema = problem.schema
    return {
        "format": FORMAT,
        "task": COEFFICIENTS,
        "target": problem.outcome,
        "classes": list(problem.levels) or None,
        "features": [column.name for column in problem.design.columns],
        "dataset": schema.dataset,
        "n_records": schema.records,
        "unit": "record",
        "method": "noisy Newton",
        "model": f"{problem.family.name} regression",
        "epsilon": problem.epsilon,
        "delta": problem.delta,
        "settings": _settings(problem.plan, problem.reach),
        "warnings": [],
        "schema": schema.to_json(),
        "regression": problem.to_json() | {"prior": str(prior), "contrasts": list(contrasts)},
    }


def _settings(plan: ReleasePlan, reach: float) -> list[dict[str, Any]]:
    shares = {name: share for stage in plan.stages for name, share in stage.items()}
    matrices = sum(share for name, share in shares.items() if name.endswith((" off", " on")))
    return [
        {"name": "noise of all releases", "value": plan.multiplier,
         "why": "the least multiplier with which all of them stay within epsilon (pld)"},
        {"name": "stages", "value": len(plan.stages), "why": "a first estimate, corrections, and the last releases"},
        {"name": "share of matrices", "value": round(matrices, 3), "why": "curvatures decide what can be stated"},
        {"name": "reach", "value": reach, "why": "records longer than this weigh less: the declared box's mean length"},
    ]  # fmt: skip


def save_regression(folder: RunFolder, found: Regression, contrasts: tuple[str, ...]) -> dict[str, Any]:
    """Write what was released and mark the run as finished; returns run.json."""
    facts = declared(found.problem, found.prior, contrasts)
    scales = [None if math.isinf(unit) else 1 / unit for unit in found.problem.effect_units.tolist()]
    rows = [row.to_json() | {"scale": scale} for row, scale in zip(found.coefficients(LEVEL), scales, strict=True)]
    facts |= {
        "warnings": found.warnings,
        "coefficients": rows,
        "contrasts": [row.to_json() for text in contrasts for row in found.contrast(text, LEVEL)],
        "references": found.problem.design.references,
    }
    facts["regression"] |= {"doubt": found.doubt, "convergence": found.convergence}
    parts = {"draws": found.draws.values.astype(np.float32), "sampling": found.draws.sampling,
             "unclear": found.draws.unclear}  # fmt: skip
    replace_file(folder.posterior, save({name: np.ascontiguousarray(value) for name, value in parts.items()}))
    write_json(folder.facts, facts)
    folder.finish()
    return facts


def read_regression(path: str | Path) -> Regression:
    """A finished regression, checked against its manifest and ledger."""
    folder = RunFolder(Path(path))
    if not folder.is_finished:
        raise InputError(
            f"{path} holds no finished regression; what it was charged for stands in its ledger, and another try needs "
            "another folder"
        )
    folder.check_finished()
    found, data = read_json(folder.facts, FORMAT), read_bytes(folder.posterior)
    if found is None or data is None or found.value("task") != COEFFICIENTS:
        raise InputError(f"{path} is no run of tacit regress")
    try:
        said, parts = found.content["regression"], load(data)
        problem = RegressionProblem(
            Schema.from_json(found.content["schema"]), said["outcome"], found.content["epsilon"],
            found.content["delta"], said["family"], said["exposure"], tuple(said["interactions"]),
        )  # fmt: skip
        prior = Prior.parse(said["prior"])
        values = parts["draws"].astype(np.float64)
        if values.shape[1:] != (len(problem.names),):
            raise InputError(f"{folder.posterior} holds draws of other coefficients than {folder.facts} names")
        draws = Draws(problem.names, values, parts["sampling"], parts["unclear"], prior.kind != "flat")
        return Regression(
            problem, prior, draws, float(said["doubt"]), float(said["convergence"]), read_ledger(folder.path)
        )
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, SafetensorError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{folder.facts} is damaged: {type(error).__name__} {error}") from error
