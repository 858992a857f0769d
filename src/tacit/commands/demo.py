"""``tacit demo``: a private Bayesian classifier on real medical data, in under a minute."""

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import track

from tacit.commands.output import console, print_json
from tacit.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.commands.breast_cancer import Split
    from tacit.evaluation import Reliability
    from tacit.ledger import Ledger
    from tacit.posteriors import Posterior, Prediction

EPSILON, DELTA = 1.0, 1e-5
# Chosen from (n, features, epsilon) by a public rule before the data is read; docs/demo.md says which.
PROBABILITY, STEPS, CLIP_NORM, LEARNING_RATE, PRIOR_STDDEV = 0.2, 300, 0.5, 3.4, 1.0
DRAWS, APART = 50, 3
SPLITS = 10  # one split of 143 test patients says little: its accuracy varies by two points by chance alone


def demo(
    out: Annotated[
        Path | None, typer.Option(help="Where the model, ledger and picture go.", show_default=False)
    ] = None,
    bayesian_evidence: Annotated[
        bool, typer.Option("--bayesian-evidence", help="Gather private evidence, for tacit account --bayesian.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train a private Bayesian classifier by DP-SGLD on real medical data, and say what it knows and what it cost."""
    folder = _folder(out)
    if not json:
        console.print(
            "[bold]Tacit demo[/]: is a breast tumour benign? DP-SGLD on the measurements of 426 patients "
            f"(scikit-learn's breast cancer data), epsilon {EPSILON:g}, delta {DELTA:g}.",
            highlight=False,
        )
    outcome = _work(folder, bayesian_evidence, quiet=json)
    if json:
        print_json(outcome.to_json())
    else:
        outcome.show()


def _folder(out: Path | None) -> Path:
    """A folder without a run in it: training again on the same ledger would rightly be charged on top."""
    if out is None:
        number = 1
        while (folder := Path("tacit-demo" if number == 1 else f"tacit-demo-{number}")).exists():
            number += 1
        return folder
    if (out / "ledger.jsonl").exists():
        raise InputError(f"{out} holds a run already; name another folder with --out, or remove it")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is not a folder; name another with --out")
    return out


@dataclass(frozen=True, slots=True)
class _Trained:
    """One private run on one split, and its predictions for the patients it has not seen."""

    ledger: "Ledger"
    posterior: "Posterior"
    prediction: "Prediction"
    labels: "Tensor"
    temperature: float
    open_accuracy: float

    @property
    def accuracy(self) -> float:
        return float((self.prediction.classes == self.labels).double().mean())


@dataclass(frozen=True, slots=True)
class _Case:
    """What the model says about one patient."""

    benign: float
    truth: str
    entropy: float
    mutual_information: float

    @classmethod
    def of(cls, run: _Trained, index: int) -> "_Case":
        from tacit.commands.breast_cancer import NAMES

        prediction = run.prediction
        return cls(
            float(prediction.mean[index, 1]),
            NAMES[int(run.labels[index])],
            float(prediction.entropy[index]),
            float(prediction.mutual_information[index]),
        )

    def describe(self) -> str:
        advice = "ask a doctor" if self.entropy > 0.6 else "fairly sure"
        return (
            f"benign with probability {self.benign:.2f} (truth: {self.truth}); uncertainty {self.entropy:.2f} "
            f"of at most 0.69 nats, {self.mutual_information:.2f} of it about the weights: {advice}"
        )


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Everything the demo has to say. The first run is the one that is kept; the others show how much is chance."""

    folder: Path
    runs: list[_Trained]
    calibration: "Reliability"
    right_where_sure: float
    results: list[Any]

    @property
    def accuracy(self) -> float:
        return mean(run.accuracy for run in self.runs)

    @property
    def spread(self) -> float:
        return stdev(run.accuracy for run in self.runs)

    @property
    def open_accuracy(self) -> float:
        return mean(run.open_accuracy for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        return {
            "accuracy": self.accuracy,
            "accuracy_spread": self.spread,
            "accuracy_non_private": self.open_accuracy,
            "accuracy_of_the_kept_run": self.runs[0].accuracy,
            "splits": len(self.runs),
            "ece": self.calibration.ece,
            "mce": self.calibration.mce_of_filled_bins,
            "effective_temperature": self.runs[0].temperature,
            "guarantees": [result.to_json() for result in self.results],
            "predictions": [asdict(case) for case in self.three()],
            "out": str(self.folder),
        }

    def three(self) -> list[_Case]:
        """The surest benign, the surest malignant and the least certain patient of the kept run's test data."""
        run = self.runs[0]
        entropy, classes = run.prediction.entropy, run.prediction.classes
        sure = [int((entropy + 9 * (classes != kind)).argmin()) for kind in (1, 0)]
        return [_Case.of(run, index) for index in (*sure, int(entropy.argmax()))]

    def show(self) -> None:
        from tacit.commands.account import print_guarantees

        console.print(
            f"\naccuracy on patients it has not seen: [bold]{self.accuracy:.1%}[/] private, "
            f"{self.open_accuracy:.1%} without privacy (mean of {len(self.runs)} random splits; "
            f"one split varies by {self.spread:.1%})\n"
            f"calibration: expected error {self.calibration.ece:.3f}; "
            f"of the 80 % it is surest of, {self.right_where_sure:.1%} are right\n"
            f"effective temperature of the posterior: {self.runs[0].temperature:.2f} "
            "(above 1: wider than the exact posterior, the price of privacy on few records)\n",
            highlight=False,
        )
        print_guarantees(self.runs[0].ledger, self.results)
        console.print("\n[bold]Three patients[/]")
        for case in self.three():
            console.print(f"  {case.describe()}", highlight=False)
        console.print(
            f"\n[bold]{self.folder}/[/] holds the first split's model.safetensors and ledger.jsonl, and demo.png. "
            f"[bold]tacit account {self.folder}[/] computes the number again from the ledger.",
            highlight=False,
        )


def _work(folder: Path, evidence: bool, quiet: bool) -> _Outcome:
    import torch

    from tacit.accountants import calibrate_noise, guarantees
    from tacit.commands import breast_cancer
    from tacit.evaluation import reliability

    noise = calibrate_noise(EPSILON, DELTA, probability=PROBABILITY, steps=STEPS).noise_multiplier
    with tempfile.TemporaryDirectory() as elsewhere:
        runs = []
        for split in track(range(SPLITS), "training privately", disable=quiet, transient=True):
            home = folder if split == 0 else Path(elsewhere) / str(split)
            kept = evidence and split == 0
            runs.append(_train(breast_cancer.load(seed=split), home / "ledger.jsonl", noise, kept))
    probabilities = torch.cat([run.prediction.mean for run in runs])
    labels = torch.cat([run.labels for run in runs])
    calibration = reliability(probabilities, labels, bins=10)
    surest_first = probabilities.max(1).values.argsort(descending=True)
    right = (probabilities.argmax(1) == labels)[surest_first].double()
    runs[0].posterior.save(folder / "model.safetensors")
    _draw(folder / "demo.png", calibration, right)
    where_sure = float(right[: int(0.8 * len(right))].mean())
    return _Outcome(folder, runs, calibration, where_sure, guarantees(runs[0].ledger, DELTA))


def _train(data: "Split", ledger: Path, noise: float, evidence: bool) -> _Trained:
    from torch import nn
    from torch.nn.functional import binary_cross_entropy_with_logits

    from tacit.accountants import Budget
    from tacit.commands.breast_cancer import FEATURES
    from tacit.inference import SGLD, GaussianPrior
    from tacit.mechanisms import ClipRecords, GaussianNoise
    from tacit.posteriors import predict
    from tacit.sampling import PoissonSampling
    from tacit.training import EvidencePlan, TrainingPlan, train

    def losses(model: nn.Module, batch: Any) -> Any:
        return binary_cross_entropy_with_logits(model(batch[0])[:, 0], batch[1].float(), reduction="none")

    size = len(data.train_labels)  # public here: the demo's split is fixed and documented
    model = nn.Linear(FEATURES, 1, bias=False)
    nn.init.zeros_(model.weight)
    method = SGLD(model, losses, GaussianPrior(PRIOR_STDDEV), LEARNING_RATE / size, size, temperature=None)
    plan = TrainingPlan(
        sampling=PoissonSampling(probability=PROBABILITY, expected_size=PROBABILITY * size),
        clipping=ClipRecords(CLIP_NORM),
        noise=GaussianNoise(multiplier=noise),
        steps=STEPS,
        ledger=ledger,
        budget=Budget(EPSILON, DELTA),
        dataset="breast cancer (scikit-learn), training part",
        dataset_size=size,
        assumptions=("feature bounds and the number of records were declared as public",),
    )
    private = (data.train_inputs, data.train_labels)
    held_out = (data.test_inputs, data.test_labels)
    gathered = EvidencePlan(probes=held_out, probe_every=1, members=True) if evidence else None
    run = train(method, private, plan, keep_last=DRAWS, keep_every=APART, evidence=gathered)
    prediction = predict(model, run.posterior, data.test_inputs, link="sigmoid")
    temperature = method.effective_temperature(noise * CLIP_NORM, plan.sampling.denominator)
    return _Trained(run.ledger, run.posterior, prediction, data.test_labels, temperature, _open_accuracy(data))


def _open_accuracy(data: "Split") -> float:
    """Ordinary logistic regression on the same features: what privacy costs in accuracy. Never to be released."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=10.0, max_iter=5000).fit(data.train_inputs.numpy(), data.train_labels.numpy())
    return float(model.score(data.test_inputs.numpy(), data.test_labels.numpy()))


def _draw(path: Path, calibration: "Reliability", right_by_sureness: "Tensor") -> None:
    """Calibration, and how accuracy rises when the least certain patients are left to a doctor."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    from tacit.evaluation import draw_reliability

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
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
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
