"""``tacit demo``: the commands a newcomer needs, run one after the other on real medical data, in about a minute."""

import csv
import io
import tempfile
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.commands.output import console, print_json, say
from tacit.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.evaluation import Reliability

EPSILON, DELTA = 1.0, 1e-5
SPLITS = 10  # one split of 143 test patients says little: its accuracy varies by two points by chance alone


def demo(
    context: typer.Context,
    out: Annotated[
        Path | None, typer.Option(help="Where the tables, the run and the picture go.", show_default=False)
    ] = None,
    bayesian_evidence: Annotated[
        bool, typer.Option("--bayesian-evidence", help="Gather private evidence, for tacit account --bayesian.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train a private Bayesian classifier by DP-SGLD on real medical data, and say what it knows and what it cost."""
    folder, run = _folder(out), partial(_run, context.find_root().command)
    with redirect_stdout(io.StringIO()) if json else nullcontext():
        _guide(run, folder, bayesian_evidence)
        outcome = _compare(folder, quiet=json)
        outcome.show(run)
    if json:
        print_json(outcome.to_json())


def _folder(out: Path | None) -> Path:
    """A folder without a run in it: training again on the same ledger would rightly be charged on top."""
    if out is None:
        number = 1
        while (folder := Path("tacit-demo" if number == 1 else f"tacit-demo-{number}")).exists():
            number += 1
        return folder
    if (out / "run").exists():
        raise InputError(f"{out} holds a run already; name another folder with --out, or remove it")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is not a folder; name another with --out")
    return out


def _guide(run: Callable[..., None], folder: Path, evidence: bool) -> None:
    """The first split, by the very commands that a user would type."""
    from tacit.commands.demo.breast_cancer import patients_schema, split, write_table
    from tacit.storage.files import write_new_file
    from tacit.tables import schema_text

    say(
        ": is a breast tumour benign? Measurements of 426 patients are private, those of 143 others are public and "
        "test what was learned (scikit-learn's breast cancer data).",
        head="Tacit demo",
    )
    folder.mkdir(parents=True, exist_ok=True)
    for table, name in zip(split(seed=0), ("patients.csv", "new-patients.csv"), strict=True):
        write_table(table, folder / name)
    say(" What is public about the table? A draft knows names and types only:", head="\n1.")
    run("schema", folder / "patients.csv", "--target", "diagnosis", "--out", folder / "draft.toml")
    write_new_file(folder / "schema.toml", schema_text(patients_schema()).encode())
    say(f"A person filled in ranges from the data set's documentation: {folder / 'schema.toml'}.")
    say(" Train. The settings follow from public numbers; --explain would say why.", head="\n2.")
    more = ["--bayesian-evidence"] if evidence else []
    run("train", folder / "patients.csv", "--schema", folder / "schema.toml", "--epsilon", f"{EPSILON:g}", "--delta",
         f"{DELTA:g}", "--public-test", folder / "new-patients.csv", "--out", folder / "run", *more)  # fmt: skip
    say(" Predict, with what it does not know:", head="\n3.")
    run("predict", folder / "run", folder / "new-patients.csv", "--out", folder / "predictions.csv")


def _run(program: Any, *arguments: object) -> None:
    """Another command of the program that runs this one; its error is ours, and is told once."""
    words = [str(argument) for argument in arguments]
    say(f"$ tacit {' '.join(words)}", style="bold green")
    program.main(words, prog_name="tacit", standalone_mode=False)


@dataclass(frozen=True, slots=True)
class _Case:
    """What the model says about one patient."""

    benign: float
    truth: str
    entropy: float
    mutual_information: float

    def describe(self) -> str:
        advice = "ask a doctor" if self.entropy > 0.6 else "fairly sure"
        return (
            f"benign with probability {self.benign:.2f} (truth: {self.truth}); uncertainty {self.entropy:.2f} "
            f"of at most 0.69 nats, {self.mutual_information:.2f} of it about the weights: {advice}"
        )


def _example_patients(folder: Path) -> list[_Case]:
    """The surest benign, the surest malignant and the least certain patient among the predictions."""
    with (folder / "predictions.csv").open() as said, (folder / "new-patients.csv").open() as true:
        rows = list(zip(csv.DictReader(said), csv.DictReader(true), strict=True))
    cases = [
        _Case(
            float(row["probability benign"]),
            truth["diagnosis"],
            float(row["entropy"]),
            float(row["mutual information"]),
        )
        for row, truth in rows
    ]
    by_entropy = sorted(cases, key=lambda case: case.entropy)
    surest = [next(case for case in by_entropy if (case.benign > 0.5) == benign) for benign in (True, False)]
    return [*surest, by_entropy[-1]]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Everything the demo has to say. The first run is the one that is kept; the others show how much is chance."""

    folder: Path
    accuracies: list[float]
    open_accuracies: list[float]
    calibration: "Reliability"
    right_where_sure: float
    results: list[Any]
    temperature: float | None

    def to_json(self) -> dict[str, Any]:
        return {
            "accuracy": mean(self.accuracies),
            "accuracy_spread": stdev(self.accuracies),
            "accuracy_non_private": mean(self.open_accuracies),
            "accuracy_of_the_kept_run": self.accuracies[0],
            "splits": len(self.accuracies),
            "ece": self.calibration.ece,
            "mce": self.calibration.mce_of_filled_bins,
            "effective_temperature": self.temperature,
            "guarantees": [result.to_json() for result in self.results],
            "predictions": [asdict(case) for case in _example_patients(self.folder)],
            "out": str(self.folder),
        }

    def show(self, run: Callable[..., None]) -> None:
        say("", head="Three patients")
        for case in _example_patients(self.folder):
            say(f"  {case.describe()}")
        say(
            " What does privacy cost? One test of 143 patients says little, so the same was done on "
            f"{len(self.accuracies)} random splits:\n"
            f"accuracy on patients it has not seen: {mean(self.accuracies):.1%} private, "
            f"{mean(self.open_accuracies):.1%} without privacy (one split varies by {stdev(self.accuracies):.1%})\n"
            f"calibration: expected error {self.calibration.ece:.3f}; "
            f"of the 80 % it is surest of, {self.right_where_sure:.1%} are right",
            head="\n4.",
        )
        say(f" What did it cost? Every accountant reads the ledger of {self.folder / 'run'}:", head="\n5.")
        run("account", self.folder / "run", "--delta", f"{DELTA:g}")
        say(" Show it to others: one page for people who will never run it, and a bundle that may leave.", head="\n6.")
        run("report", self.folder / "run")
        run("release", self.folder / "run", "--out", self.folder / "bundle")
        say(
            " holds the tables, the run, the predictions, demo.png and the bundle. The runs of the other splits were "
            "thrown away: to release all of them would cost ten times as much.",
            head=f"\n{self.folder}/",
        )
        say(f" {(self.folder / 'run' / 'report.html').resolve()}", head="\nOpen the page:")
        say("", head="Then")
        say(f"  tacit audit {self.folder / 'run'}  tries to break the guarantee")
        say("  tacit explain epsilon 1  says what the number means to one of the patients")
        say("  tacit schema YOUR.csv --target COLUMN --out schema.toml  begins with a table of your own")


def _compare(folder: Path, quiet: bool) -> _Outcome:
    import torch

    from tacit.accountants import guarantees
    from tacit.commands.demo.breast_cancer import TARGET, patients_schema, split
    from tacit.evaluation import reliability
    from tacit.ledger import read_ledger
    from tacit.runs import Problem, RunFacts, RunFolder, read_predictor, train_table
    from tacit.tables import encode
    from tacit.training.progress import progress_bar

    schema = patients_schema()
    problem = Problem(schema, TARGET, EPSILON, DELTA)
    probabilities, labels, opened = [], [], []
    with tempfile.TemporaryDirectory() as elsewhere, progress_bar(SPLITS, shown=not quiet, console=console) as passed:
        for number in range(SPLITS):
            private, public = (encode(table, schema, TARGET) for table in split(number))
            if number == 0:
                predictor = read_predictor(folder / "run")
            else:
                other = RunFolder(Path(elsewhere) / str(number))
                predictor = train_table(RunFacts(problem), private, other, checkpoints=False).predictor
            probabilities.append(predictor.classes(public.inputs).mean)
            labels.append(torch.from_numpy(public.targets))
            opened.append(_open_accuracy(private, public))
            passed(number)
    accuracies = [float((p.argmax(1) == t).double().mean()) for p, t in zip(probabilities, labels, strict=True)]
    together, truth = torch.cat(probabilities), torch.cat(labels)
    calibration = reliability(together, truth, bins=10)
    right = (together.argmax(1) == truth)[together.max(1).values.argsort(descending=True)].double()
    _draw(folder / "demo.png", calibration, right)
    where_sure = float(right[: int(0.8 * len(right))].mean())
    results = guarantees(read_ledger(folder / "run"), DELTA)
    temperature = RunFolder(folder / "run").read_facts().effective_temperature
    return _Outcome(folder, accuracies, opened, calibration, where_sure, results, temperature)


def _open_accuracy(private: Any, public: Any) -> float:
    """Ordinary logistic regression on the same features: what privacy costs in accuracy. Never to be released."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=10.0, max_iter=5000).fit(private.inputs, private.targets)
    return float(model.score(public.inputs, public.targets))


def _draw(path: Path, calibration: "Reliability", right_by_sureness: "Tensor") -> None:
    """Calibration, and how accuracy rises when the least certain patients are left to a doctor."""
    from tacit.evaluation import draw_reliability
    from tacit.reports.plots import save_picture, without_screen

    figure, (left, right) = without_screen().subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    draw_reliability(left, calibration, f"Calibration over {SPLITS} splits: ECE {calibration.ece:.3f}")
    count = len(right_by_sureness)
    decided = [(number + 1) / count for number in range(count)]
    share_right = right_by_sureness.double().cumsum(0) / (right_by_sureness.new_ones(count).cumsum(0))
    right.plot(decided, share_right, color="#1f5a99")
    right.set(
        xlabel="share of patients it decides itself, the surest first",
        ylabel="accuracy among them",
        title="It knows when to ask a doctor",
        xlim=(0.2, 1),
    )
    save_picture(figure, path)
