"""What a run says about new records: probabilities or numbers, and how sure it is."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tacit.errors import InputError
from tacit.posteriors import Posterior, Prediction, RegressionPrediction, load_posterior, predict
from tacit.runs.facts import Spread
from tacit.runs.folder import RunFolder
from tacit.runs.models import likelihood_of, reading_model, spread_likelihood
from tacit.runs.problem import Problem
from tacit.tables import Flag, Table, encode_inputs, target_scale
from tacit.tables.encoding import Inputs
from tacit.tables.files import to_text

LEVELS = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)


@dataclass(frozen=True, slots=True)
class Predictor:
    """A finished run, ready to predict."""

    problem: Problem
    posterior: Posterior
    spread: Spread | None = None

    def classes(self, inputs: Inputs) -> Prediction:
        found = self._predict(inputs, likelihood_of(self.problem))
        assert isinstance(found, Prediction)
        return found

    def numbers(self, inputs: Inputs) -> RegressionPrediction:
        """On the target's own scale, within its bounds: targets beyond them were clamped, so their quantiles are."""
        spread = self.spread
        learned = likelihood_of(self.problem) if spread is None else spread_likelihood(self.problem, spread)
        found = self._predict(inputs, learned)
        assert isinstance(found, RegressionPrediction)
        middle, half = target_scale(self.problem.schema, self.problem.target)
        quantiles = middle + half * found.quantiles.clamp(-1, 1)
        return RegressionPrediction(
            middle + half * found.mean.clamp(-1, 1),
            half**2 * found.data_uncertainty,
            half**2 * found.posterior_uncertainty,
            quantiles.round() if self.problem.counts else quantiles,
            found.levels,
        )

    def _predict(self, inputs: Inputs, likelihood: Any) -> Prediction | RegressionPrediction:
        model = reading_model(self.problem)
        found: Prediction | RegressionPrediction = predict(
            model, self.posterior, torch.from_numpy(inputs), likelihood=likelihood, levels=LEVELS
        )
        return found

    def table(self, table: Table, id_column: str | None = None) -> dict[str, Any]:
        """The columns that ``tacit predict`` writes, one value for each row of the table.

        First comes the column that says whose row it is: the one that is named, or the unit of privacy if it is there.
        """
        schema = self.problem.schema
        columns = self._columns(table)
        if id_column is None and schema.unit != "record" and schema.unit in table.columns:
            id_column = schema.unit
        if id_column is None:
            return columns
        if id_column in columns:
            raise InputError(f"the id column {id_column!r} has the name of a predicted column; rename it in the table")
        return {id_column: to_text(table.column(id_column)), **columns}

    def _columns(self, table: Table) -> dict[str, Any]:
        inputs = encode_inputs(table, self.problem.schema, self.problem.target)
        target, classes = self.problem.target, self._class_names(table)
        if classes is None:
            found = self.numbers(inputs)
            return {
                target: found.mean.numpy(),
                "stddev": found.stddev.numpy(),
                "low 95%": found.quantiles[:, 0].numpy(),
                "high 95%": found.quantiles[:, -1].numpy(),
                "stddev from the data": found.data_uncertainty.sqrt().numpy(),
                "stddev from the weights": found.posterior_uncertainty.sqrt().numpy(),
            }
        predicted = self.classes(inputs)
        columns: dict[str, Any] = {target: np.array(classes, dtype=object)[predicted.classes.numpy()]}
        columns |= {f"probability {name}": predicted.mean[:, number].numpy() for number, name in enumerate(classes)}
        uncertain = predicted.entropy.numpy(), predicted.mutual_information.numpy()
        return columns | {"entropy": uncertain[0], "mutual information": uncertain[1]}

    def _class_names(self, table: Table) -> tuple[str, ...] | None:
        """The classes as the table calls them, if it has the target; otherwise as they are declared."""
        target, schema = self.problem.target, self.problem.schema
        column = schema.column(target)
        if isinstance(column, Flag) and target in table.columns:
            flag = column.in_words_of(to_text(table.columns[target]).tolist())
            return flag.no[0], flag.yes[0]
        return self.problem.classes


def read_predictor(path: str | Path) -> Predictor:
    """A finished run, checked against its manifest, ready to predict."""
    folder = RunFolder(Path(path))
    folder.check_finished()
    facts = folder.read_facts()
    return Predictor(facts.problem, load_posterior(folder.posterior), facts.spread)
