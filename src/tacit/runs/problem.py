"""What is to be learned from a table, as public facts: the target, the kind of model, the method and their settings."""

from dataclasses import dataclass
from functools import cached_property

from tacit.errors import InputError, check_fraction
from tacit.tables import Facts, Method, Number, Recipe, Schema, Task, feature_names, recipe

HIDDEN = 16  # units of the mlp


@dataclass(frozen=True)
class Problem:
    """A table's schema, what to predict, by which method, within which budget.

    Args:
        model: "linear", "mlp", or MODULE:FACTORY, called with the numbers of features and of outputs.
        hold_out: which share of the units is kept from training, to say how good the model is.
        shared: the budget is shared with other runs, some of them still to be designed, so that RDP must calibrate.
    """

    schema: Schema
    target: str
    epsilon: float
    delta: float
    method: Method = "sgld"
    model: str = "linear"
    shared: bool = False
    hold_out: float = 0.0

    def __post_init__(self) -> None:
        self.schema.check(self.target)
        check_fraction("hold_out", self.hold_out)
        if self.hold_out and self.task == "regression":
            raise InputError("--hold-out scores classes; numbers have no private score yet, give --public-test FILE")
        if self.hold_out and self.shared:
            raise InputError("--hold-out needs a ledger of its own; leave out --budget")

    @property
    def units(self) -> int:
        """The declared number of units that are trained on."""
        return max(1, round((1 - self.hold_out) * self.schema.units))

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
            )
        )

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
