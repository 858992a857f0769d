"""Paper N on MNIST: its two networks, its methods, its budget, private and not. Shared by its tables and figures.

A *non-DP* fit takes the same number of steps without clipping and privacy noise. Settings were fixed beforehand; those
that are not the paper's are said where they stand.
"""

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import tacit
from tacit.data import ImageData, load_mnist
from tacit.reproduction import Work

BATCH, SIZE, STEPS, CLIP_NORM, NOISE, DELTA = 256, 60_000, 3516, 1.5, 1.3, 1e-5
DRAWS, SHOWN = 100, 1_000  # predictions per posterior; test digits whose single predictions are kept
BAYESIAN = ("SGLD", "BBP", "MC Dropout")


@dataclass(frozen=True)
class Setting:
    """A line of a table: which network, which method, with what prior, private or not."""

    network: str
    method: str
    prior: bool
    private: bool

    @property
    def name(self) -> str:
        prior, privacy = "with" if self.prior else "without", "DP" if self.private else "non-DP"
        return f"{self.method} ({prior} prior), {privacy}"

    @property
    def folder(self) -> str:
        return "-".join(self.name.lower().replace("(", "").replace("),", "").split()) + f"-{self.network}"


@dataclass(frozen=True)
class Fit:
    """What a fit predicts: mean probabilities of the test digits, and of the first ones those of every draw."""

    mean: Tensor
    draws: Tensor
    labels: Tensor
    epsilon: float
    seconds: float

    @property
    def reliability(self) -> tacit.evaluation.Reliability:
        return tacit.reliability(self.mean, self.labels)


def settings(network: str, methods: Iterable[str], priors: Iterable[bool] = (True, False)) -> list[Setting]:
    chosen = [(method, prior) for method in methods for prior in priors]
    return [Setting(network, method, prior, private) for method, prior in chosen for private in (True, False)]


def build_network(network: str, dropout: float = 0.0) -> nn.Sequential:
    """The tutorial CNN of the DP libraries, or two hidden layers of 1200; with dropout before their linear layers."""
    layers: list[nn.Module] = [
        nn.Flatten(), nn.Linear(784, 1200), nn.ReLU(), nn.Dropout(dropout),
        nn.Linear(1200, 1200), nn.ReLU(), nn.Dropout(dropout), nn.Linear(1200, 10),
    ]  # fmt: skip
    if network == "cnn":
        layers = [
            nn.Conv2d(1, 16, 8, stride=2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, stride=2),
            nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Dropout(dropout), nn.Linear(512, 32), nn.ReLU(),
            nn.Dropout(dropout), nn.Linear(32, 10),
        ]  # fmt: skip
    return nn.Sequential(*(layer for layer in layers if dropout or not isinstance(layer, nn.Dropout)))


def losses(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return cross_entropy(model(scale(batch[0])), batch[1].long(), reduction="none")


def scale(images: Tensor) -> Tensor:
    """Public constants of MNIST; to learn them from private data would cost privacy."""
    return (images.float() / 255 - 0.1307) / 0.3081


def build_method(setting: Setting) -> tuple[Any, tacit.GaussianNoise | None]:
    """The method of a line, and the noise of its plan: none where the sampler's temperature decides."""
    prior = tacit.GaussianPrior(0.1) if setting.prior else tacit.inference.FlatPrior()
    noise, network = tacit.GaussianNoise(multiplier=NOISE), build_network(setting.network)
    calm = 1.0 if setting.private else 0.2  # unclipped, SGD and SGLD diverged,
    rate = 0.25 * (calm if setting.network == "cnn" else 1.0)  # and on the CNN the others too
    match setting.method:
        case "SGD":
            return tacit.SGD(network, losses, calm * 0.25, prior, SIZE), noise
        case "SGLD":  # at temperature 1/2, as the paper; its noise multiplier is 1.272
            return tacit.SGLD(network, losses, prior, calm * 5e-6, SIZE, temperature=0.5), None
        case "BBP":
            return tacit.bayes_by_backprop(
                network, losses, dataset_size=SIZE, learning_rate=rate, prior=prior, average=0.99
            ), noise
        case _:  # the paper drops half; a layer of 32 units bears only a twentieth. Its rate, 2e-4, is not that of SGD
            network = build_network(setting.network, 0.05 if setting.network == "cnn" else 0.5)
            return tacit.MCDropout(
                network, losses, tacit.inference.PlainDescent(rate), prior, SIZE, average=0.99
            ), noise


def train_privately(
    method: Any, noise: tacit.GaussianNoise | None, data: ImageData, ledger: Path, steps: int, batch: int = BATCH,
    keep: int = 1, evidence: tacit.EvidencePlan | None = None,
) -> tacit.training.Run:  # fmt: skip
    sampling = tacit.PoissonSampling.of(batch_size=batch, dataset_size=SIZE)
    plan = tacit.TrainingPlan(sampling, tacit.ClipRecords(CLIP_NORM), noise, steps, ledger, dataset="mnist")
    return tacit.train(
        method, (data.train_images, data.train_labels), plan, keep_last=min(keep, steps), evidence=evidence
    )


def train_openly(method: Any, data: ImageData, steps: int, keep: int) -> Any:
    """The same steps on plain mean gradients; a sampler keeps its own Langevin noise."""
    state, kept = method.init(), []
    for step, rows in enumerate(_samples(steps)):
        params = {key: value.detach().requires_grad_() for key, value in method.params(state).items()}
        mean = method.losses(params, (data.train_images[rows], data.train_labels[rows])).sum() / BATCH
        gradient = dict(zip(params, torch.autograd.grad(mean, list(params.values())), strict=True))
        stddev = method.noise_stddev(step, BATCH)
        if stddev is not None:
            gradient = {key: value + torch.randn_like(value) * stddev / BATCH for key, value in gradient.items()}
        state = method.step(state, gradient)
        if step >= steps - keep:
            kept.append({key: value.detach() for key, value in method.params(state).items()})
    if hasattr(method, "posterior"):
        return method.posterior(state)
    return tacit.Draws.of(kept) if keep > 1 else tacit.posteriors.Point(kept[-1])


def _samples(steps: int) -> Iterator[Tensor]:
    for _ in range(steps):
        yield torch.nonzero(torch.rand(SIZE) < BATCH / SIZE)[:, 0]


def fit(work: Work, setting: Setting) -> Fit:
    """Train and predict; or take what an earlier try of the same seed and length kept, if --resume asks for it."""
    steps = 4 if work.quick else STEPS
    facts = {**asdict(setting), "seed": work.seed, "steps": steps, "shown": SHOWN, "draws": DRAWS}
    found = _kept(work, setting, facts) if work.resume else None
    return found or _make(work, setting, facts, steps)


def _make(work: Work, setting: Setting, facts: dict[str, Any], steps: int) -> Fit:
    data, folder = load_mnist(), work.folder(setting.folder)
    torch.manual_seed(work.seed)
    method, noise = build_method(setting)
    keep, start, epsilon = min(steps, DRAWS if setting.method == "SGLD" else 1), time.perf_counter(), 0.0
    if setting.private:
        run = train_privately(method, noise, data, folder / "ledger.jsonl", steps, keep=keep)
        posterior, [guarantee] = run.posterior, tacit.guarantees(run.ledger, DELTA, only=["pld"])
        epsilon = guarantee.epsilon
    else:
        posterior = train_openly(method, data, steps, keep)
    seconds = time.perf_counter() - start
    if work.quick and hasattr(posterior, "draws"):
        posterior = replace(posterior, draws=2)
    images = data.test_images[: SHOWN if work.quick else None]
    mean = tacit.predict(method.model, posterior, scale(images)).mean
    tensors = {"mean": mean, "draws": each_draw(method.model, posterior, scale(images[:SHOWN])).half()}
    tensors["labels"] = data.test_labels[: len(images)].long()
    save_file(tensors, folder / "fit.safetensors")
    told = {**facts, "epsilon": epsilon, "seconds": seconds}
    (folder / "fit.json").write_text(json.dumps(told, indent=2) + "\n")  # last: it says that the rest is there
    return Fit(**tensors, epsilon=epsilon, seconds=seconds)


def _kept(work: Work, setting: Setting, facts: dict[str, Any]) -> Fit | None:
    """Tables and figures that rest on the same fits lie beside each other and need not make them twice."""
    for path in sorted(work.out.parent.glob(f"*/{setting.folder}*/fit.json")):
        told = json.loads(path.read_text())
        if all(told[name] == value for name, value in facts.items()):
            if path.parent.parent != work.out:
                work.note(f"{setting.name}: the fit is that of {path.parent.parent.name}")
            return Fit(**load_file(path.with_suffix(".safetensors")), epsilon=told["epsilon"], seconds=told["seconds"])
    return None


def each_draw(model: nn.Module, posterior: Any, inputs: Tensor) -> Tensor:
    """Class probabilities [draws, inputs, classes]."""
    if isinstance(posterior, tacit.posteriors.DropoutPosterior):
        single = [replace(posterior, draws=1, seed=number) for number in range(posterior.draws)]
    else:
        single = [tacit.posteriors.Point(vectors) for vectors in posterior]
    return torch.stack([tacit.predict(model, one, inputs).mean for one in single])


def measure_calibration(work: Work, wanted: Iterable[Setting]) -> None:
    """Accuracy and calibration; the MCE over all bins, as the paper's, and over those that say something."""
    for setting in wanted:
        names = ["accuracy", "ECE", "MCE", "MCE of bins with 25 records", *(["epsilon"] if setting.private else [])]
        if not work.lacks(*(f"{setting.name}: {name}" for name in names)):
            continue
        found = fit(work, setting)
        told = found.reliability
        values = [100 * told.accuracy, told.ece, told.mce, told.mce_of_filled_bins, found.epsilon]
        for name, value in zip(names, values, strict=False):
            work.measure(f"{setting.name}: {name}", value)
    work.note(f"{DRAWS} draws are averaged (SGD: its last point); one fit per line, whose ECE is within about .002")
