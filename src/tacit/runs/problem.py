"""What is to be learned from a table, as public facts: the target, the kind of model, the method and their settings."""

from dataclasses import dataclass, replace
from functools import cached_property

from tacit.errors import InputError, check_fraction
from tacit.ledger import PoissonSample, ThresholdedSample
from tacit.tables import Candidate, Facts, Method, Number, Recipe, Schema, Search, Task, feature_names, recipe
from tacit.tables.searches import DEFAULTS

HIDDEN = 16  # units of the mlp


@dataclass(frozen=True)
class Problem:
    """A table's schema, what to predict, by which method, within which budget.

    Args:
        model: "linear", "mlp", or MODULE:FACTORY, called with the numbers of features and of outputs.
        hold_out: which share of the units is kept from training, to say how good the model is.
        shared: the budget is shared with other runs, some of them still to be designed, so that RDP must calibrate.
        search: settings are searched for, by a random number of trials.
        candidate: which settings this trial, or the best of them, has.
        asked: the release that filled in the schema, charged before all else.
    """

    schema: Schema
    target: str
    epsilon: float
    delta: float
    method: Method = "sgld"
    model: str = "linear"
    shared: bool = False
    hold_out: float = 0.0
    search: Search | None = None
    candidate: Candidate = DEFAULTS
    asked: PoissonSample | ThresholdedSample | None = None

    def __post_init__(self) -> None:
        self.schema.check(self.target)
        check_fraction("hold_out", self.hold_out)

    @property
    def units(self) -> int:
        """The declared number of units that are trained on."""
        return max(1, round((1 - self.hold_out) * self.schema.units))

    @property
    def declared_units(self) -> int | None:
        """The number of units that the ledger declares: a shared one tells of all, whoever is trained on."""
        if self.units_asked:
            return None
        return self.schema.units if self.shared else self.units

    @property
    def units_asked(self) -> bool:
        """Whether the number of units is an answer of this run, unknown when its ledger was opened."""
        return self.asked is not None and bool({"records", "users"} & set(self.schema.asked))

    @property
    def task(self) -> Task:
        return self.schema.task(self.target)

    @property
    def counts(self) -> bool:
        """Whether the target counts something."""
        return isinstance(column := self.schema.column(self.target), Number) and column.count

    @property
    def classes(self) -> tuple[str, ...] | None:
        return self.schema.classes(self.target)

    @property
    def outputs(self) -> int:
        """One for a number or two classes, else one for each class."""
        return 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)

    @cached_property
    def features(self) -> int:
        return len(feature_names(self.schema, self.target))

    @cached_property
    def recipe(self) -> Recipe:
        return recipe(
            Facts(
                units=self.units,
                features=self.features,
                parameters=self._parameters,
                outputs=self.outputs,
                task=self.task,
                method=self.method,
                model=self.model,
                epsilon=self.epsilon,
                delta=self.delta,
                accountant="rdp" if self.shared else "pld",
                scored=bool(self.hold_out),
                search=self.search,
                candidate=self.candidate,
                asked=self.asked,
                units_asked=self.units_asked,
            )
        )

    def trial(self, candidate: Candidate) -> "Problem":
        """The same problem with the settings of a candidate."""
        model, method = candidate.model or self.model, candidate.method or self.method
        return replace(self, candidate=candidate, model=model, method=method)  # type: ignore[arg-type]

    def check_search(self) -> None:
        """Refuse a grid in which a candidate cannot be trained, or would cost another number of steps."""
        for candidate in () if self.search is None else self.search.candidates:
            if self.trial(candidate).recipe.search != self.recipe.search:
                raise InputError(f"{candidate} takes another number of steps than the rest; search for it alone")

    @property
    def _parameters(self) -> int:
        """How many numbers are learned; our own models need not be built to know."""
        match self.model:
            case "linear":
                return self.features * self.outputs
            case "mlp":
                return self.features * HIDDEN + (HIDDEN + 1) * self.outputs
            case _:
                from tacit.runs.factory import model_from_factory

                model = model_from_factory(self.model, self.features, self.outputs)
                return sum(p.numel() for p in model.parameters() if p.requires_grad)
