"""What ``tacit train`` says: its settings with their reasons before, what came of it after."""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table as Shown

from tacit.accountants import guarantees
from tacit.commands.output import console, print_json, say
from tacit.ledger import Ledger
from tacit.reports import Headline, headline
from tacit.runs import RunFacts, RunFolder

_SCALED = {"linear": "records beyond norm 1 weigh less", "norm": "each record has norm 1"}


def explain_settings(facts: RunFacts) -> None:
    problem = facts.problem
    shown = Shown(
        title=f"Settings of {problem.method} on {problem.schema.dataset}", title_justify="left", title_style="bold"
    )
    shown.add_column("setting")
    shown.add_column("value", justify="right")
    shown.add_column("why")
    why = f"of the declared columns, with a bias; {_SCALED[problem.schema.scaling]}"
    shown.add_row("features", str(problem.features), why)
    for setting in problem.recipe.settings:
        value = f"{setting.value:.6g}" if isinstance(setting.value, int | float) else str(setting.value)
        shown.add_row(setting.name, value, setting.why)
    console.print(shown)
    console.print(
        "These follow from public numbers alone; nothing was tried out on the private data.\n", highlight=False
    )


def warn(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        say(f": {sentence}", head="warning")


def say_outcome(folder: RunFolder, facts: RunFacts, ledger: Ledger, *, as_json: bool) -> None:
    results = guarantees(ledger, facts.problem.delta)
    evaluation = folder.read_evaluation()
    if as_json:
        print_json(
            {"out": str(folder.path), "guarantees": [result.to_json() for result in results], "evaluation": evaluation,
             "run": facts.to_json()}
        )  # fmt: skip
        return
    warn(facts.warnings[len(facts.problem.recipe.warnings) :])
    for head, text in _summary(folder, facts, headline(ledger, results), evaluation):
        say(text, head=head)


def _summary(
    folder: RunFolder, facts: RunFacts, said: Headline, evaluation: dict[str, Any] | None
) -> Iterator[tuple[str, str]]:
    """What a person wants to know at the end."""
    problem = facts.problem
    who = "anybody's record" if problem.schema.unit == "record" else "all records of any one user"
    best = said.guarantee
    if best is not None and best.is_bound and said.attack is not None:
        yield (
            "Privacy",
            f": epsilon {best.epsilon:.3f} at delta {best.delta:g} ({best.accountant}, {best.unit}). "
            f"Whoever sees the model and knows everything else guesses right with a chance of at most "
            f"{said.attack:.1%} whether {who} was in the data, at even odds beforehand; 50% is a coin.",
        )
        for sentence in best.assumptions:
            yield "", f"  - {sentence}"
    if facts.effective_temperature is not None and facts.effective_temperature > 1.05:
        yield (
            "Certainty",
            f": the draws have temperature {facts.effective_temperature:.2f}, measured on the chain's moves; above 1 "
            "they are wider than the posterior without privacy, which is the price of it.",
        )
    if facts.trial_score is not None:
        yield "Chosen", f": {problem.candidate}; noisy score {facts.trial_score:.3f}, the best of several, hence high."
    if facts.score is not None:
        yield "Private score", f" on {problem.hold_out:.0%} of the units, held out: {_scores(facts.score['scores'])}."
    if facts.score is None or evaluation is not None:
        yield from _how_good(problem.task, evaluation)
    seconds = "" if facts.seconds is None else f" ({facts.seconds:g} s)"
    yield (
        f"{folder.path}/",
        f" holds the model, the ledger and run.json{seconds}. Next: "
        f"tacit predict {folder.path} NEW.csv --out predictions.csv, tacit report {folder.path}",
    )


def _scores(scores: list[dict[str, Any]]) -> str:
    """Each with its interval, which holds noise and chance."""
    said = []
    for score in scores:
        of = f" (“{score['cell']}”)" if score["cell"] else ""
        said.append(f"{score['query']}{of} {score['value']:.3f} [{score['low']:.3f}, {score['high']:.3f}]")
    return ", ".join(said)


def _baseline(evaluation: dict[str, Any]) -> str:
    """What always saying the most frequent class would reach, and how much of a rare one is found."""
    always, rare = evaluation.get("accuracy_of_the_most_frequent"), evaluation.get("detection")
    words = "" if always is None else f" (always saying the most frequent: {always:.2%})"
    if rare is None:
        return words
    return f"{words}; of “{rare['rare']}” {rare['sensitivity']:.1%} are found, AUC {rare['auc']:.3f}"


def _how_good(task: str, evaluation: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    if evaluation is None:
        how = "give --public-test FILE or --hold-out 20% to learn it"
        yield "How good", f": not known. Scores on private data would leak; {how}."
    elif task == "classification":
        surest = evaluation["selective"]
        best = min(range(len(surest["kept"])), key=lambda i: abs(surest["kept"][i] - 0.8))
        yield (
            "How good",
            f": {evaluation['accuracy']:.2%} of {evaluation['records']:,} public test records are "
            f"right{_baseline(evaluation)}; calibration error {evaluation['ece']:.3f}; of the 80% it is surest of, "
            f"{surest['accuracy'][best]:.1%} are right.",
        )
    else:
        held = dict(zip(evaluation["coverage"]["level"], evaluation["coverage"]["held"], strict=True))
        yield (
            "How good",
            f": root mean squared error {evaluation['rmse']:.4g} on {evaluation['records']:,} public "
            f"test records (a constant: {evaluation['rmse_of_a_constant']:.4g}); its 95% intervals hold "
            f"{held[0.95]:.1%} of them.",
        )
