"""run.json: the public facts of a run, as those who go on with it need them, and as those who only read them do.

Whoever goes on with a run, or predicts with it, needs all of them (:class:`RunFacts`). A report or a release takes what
is there, from a run on a table as from a user's own program (:class:`DeclaredFacts`): it proves nothing by itself.
"""

import json
from dataclasses import dataclass
from typing import Any

from tacit.errors import InputError, is_number
from tacit.ledger import event_from_json, event_to_json
from tacit.runs.problem import Problem
from tacit.storage.json_files import Fields
from tacit.storage.names import clean
from tacit.tables import Candidate, Schema, Search

FORMAT = 1  # of run.json and of evaluation.json
COEFFICIENTS = "coefficients"  # the task of tacit regress
QUERIES = "queries"  # the task of tacit ask


@dataclass(frozen=True, slots=True)
class Spread:
    """The distribution of residuals, on the target's scale of [-1, 1]. Released, hence public.

    Those of counts are in tens of the standard deviations that Poisson counts would have.
    """

    stddevs: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        numbers = all(is_number(value) and value >= 0 for value in (*self.stddevs, *self.weights))
        if not numbers or not all(self.stddevs) or not 0 < len(self.stddevs) == len(self.weights):
            raise InputError("a spread needs one positive stddev for each weight of at least 0")


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What ``run.json`` holds of a run on a table, as whoever goes on with the run, or predicts with it, needs it.

    ``shared_ledger`` names the ledger of a budget that other runs share, seen from the folder, and ``public_test`` the
    file to evaluate on: whoever goes on with the run needs them. A release leaves the paths out.

    Args:
        registry: the file in which the runs on this data are entered, seen from the folder.
        evidence: whether private evidence is gathered beside the ledger.
        steps: how many the posterior comes from, once there is one.
        path: which way the losses took, once they ran.
        spread_begun: a histogram of residuals was about to be drawn; without ``spread`` it was lost.
        score: how good the model is on records that were held out: released numbers with intervals.
        score_begun: it was about to be drawn; without ``score`` it was lost.
        asking: what the schema left open was about to be asked for; until it is false, the schema is not filled in.
        trial_score: of a search, the best trial's noisy score, a mean over the declared units; the best of several.
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
    path: str | None = None
    score: dict[str, Any] | None = None
    score_begun: bool = False
    trial_score: float | None = None
    asking: bool = False

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to expect of the model; that crashes cut it short follows from them, not from the data."""
        settings, said = self.problem.recipe, list(self.problem.recipe.warnings)
        if self.steps is not None and self.steps < settings.steps:
            why = "stops lost steps that were paid for" + (", or other runs spent it" if self.shared_ledger else "")
            said.append(f"the budget ended at step {self.steps} of {settings.steps}: {why}")
        if self.steps is not None and settings.spread_noise is not None and self.spread is None:
            said.append("a stop lost the histogram of residuals: intervals are as wide as the declared range")
        if self.steps is not None and self.score_begun and self.score is None:
            said.append("a stop lost the score on records that were held out")
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
            "n_records": problem.declared_units,
            "hold_out": problem.hold_out,
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
            "path": self.path,
            "score": self.score,
            "score_begun": self.score_begun,
            "search": None if problem.search is None else problem.search.to_json(),
            "candidate": None if problem.search is None else problem.candidate.to_json(),
            "trial_score": self.trial_score,
            "asked": None if problem.asked is None else event_to_json(problem.asked),
            "asking": self.asking,
        }

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> "RunFacts":
        if facts.get("task") == COEFFICIENTS:
            raise InputError("the run is a regression, which predicts nothing; its coefficients: tacit summary RUN")
        if facts.get("task") == QUERIES:
            raise InputError("the run is one of tacit ask, which learns no model; its answers stand in its run.json")
        for name in ("target", "method", "model"):
            if not isinstance(facts[name], str):
                raise InputError(f"{name} must be text, found {facts[name]!r}")
        problem = Problem(
            _schema(facts["schema"]), facts["target"], facts["epsilon"], facts["delta"], facts["method"],
            facts["model"], shared=facts.get("shared_epsilon") is not None, hold_out=facts.get("hold_out") or 0.0,
            search=Search.from_json(facts["search"]) if facts.get("search") else None,
            candidate=Candidate(**(facts.get("candidate") or {})),
            asked=event_from_json(facts["asked"]) if facts.get("asked") else None,  # type: ignore[arg-type]
        )  # fmt: skip
        known = {name: _typed(facts, name, kinds) for name, kinds in _KINDS.items()}
        spread = facts.get("spread") or None
        spread = spread and Spread(tuple(spread["stddevs"]), tuple(spread["weights"]))
        return cls(problem, spread=spread, **known)


def _schema(facts: Any) -> Schema:
    """That of a run; those that do not say how records were scaled are older than the other way."""
    return Schema.from_json({"scaling": "norm", **facts} if isinstance(facts, dict) else facts)


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
    "path": (str,),
    "score": (dict,),
    "score_begun": (bool,),
    "trial_score": (int, float),
    "asking": (bool,),
}


def _typed(facts: dict[str, Any], name: str, kinds: tuple[type, ...]) -> Any:
    """A fact of its kind, or none; the file may have been changed by hand."""
    found = facts.get(name, False if kinds == (bool,) else None)
    if found is not None and type(found) not in kinds:
        raise TypeError(f"{name} is {found!r}")
    return found


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a run and the reason for it."""

    name: str
    value: str
    why: str


@dataclass(frozen=True, slots=True)
class Interval:
    """A coefficient of a regression and its interval; None where none is stated.

    ``scale`` makes of it the effect of half a number's declared range, or of a level; None for an intercept.
    """

    name: str
    estimate: float | None
    low: float | None
    high: float | None
    level: float
    scale: float | None = None


@dataclass(frozen=True, slots=True)
class DeclaredFacts:
    """What was declared about a run. Public, but not proved by the ledger."""

    task: str
    target: str
    classes: tuple[str, ...]
    features: tuple[str, ...]
    dataset: str | None
    n_records: int | None
    unit: str | None
    method: str
    model: str
    epsilon: float | None
    delta: float | None
    effective_temperature: float | None
    settings: tuple[Setting, ...]
    warnings: tuple[str, ...]
    derived_schema: bool
    coefficients: tuple[Interval, ...] = ()
    answers: tuple["AnsweredQuery", ...] = ()  # or, of a model, its scores on records that were held out
    assumptions: tuple[str, ...] = ()  # what the intervals of coefficients rest on besides the model


@dataclass(frozen=True, slots=True)
class AnsweredQuery:
    """A released number of tacit ask and its interval."""

    query: str
    cell: str
    value: float | None
    low: float | None
    high: float | None
    level: float | None


def parse_facts(given: Fields) -> DeclaredFacts:
    """run.json as a value; every field is optional, a field of the wrong type is an error that names it."""
    schema, regression = given.part("schema"), given.part("regression")
    return DeclaredFacts(
        task=given.text("task", ""),
        target=given.text("target", ""),
        classes=given.names("classes"),
        features=given.names("features"),
        dataset=given.text("dataset", "") or None,
        n_records=given.count("n_records"),
        unit=given.text("unit", "") or None,
        method=given.text("method", ""),
        model=given.text("model", ""),
        epsilon=given.number("epsilon"),
        delta=given.number("delta"),
        effective_temperature=given.number("effective_temperature"),
        settings=tuple(_setting(item) for item in given.parts("settings")),
        warnings=given.names("warnings"),
        derived_schema=schema is not None and schema.truth("derived_from_private_data"),
        coefficients=tuple(_interval(item) for name in (COEFFICIENTS, "contrasts") for item in given.parts(name)),
        answers=tuple(_answered(item) for item in given.parts("answers")) + _scores(given),
        assumptions=() if regression is None else regression.names("assumptions"),
    )


def _interval(item: Fields) -> Interval:
    return Interval(
        item.text("name", "unnamed"), item.number("estimate"), item.number("low"), item.number("high"),
        item.needed("level"), item.number("scale"),
    )  # fmt: skip


def _answered(item: Fields) -> AnsweredQuery:
    numbers = (item.number(name) for name in ("value", "low", "high", "level"))
    return AnsweredQuery(item.text("query", ""), item.text("cell", ""), *numbers)


def _scores(given: Fields) -> tuple[AnsweredQuery, ...]:
    score = given.part("score")
    return () if score is None else tuple(_answered(item) for item in score.parts("scores"))


def _setting(item: Fields) -> Setting:
    value: Any = item.value("value")
    return Setting(item.text("name", "unnamed"), clean(_short(value)), item.text("why", ""))


def _short(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case str() | int():
            return str(value)
        case _:
            return json.dumps(value)
