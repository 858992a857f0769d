"""Which method? SGD, SGLD, Bayes by Backprop and MC dropout on MNIST at the budget of paper N, in one table.

Run with ``TACIT_DATA`` naming the data folder: ``python examples/choosing_a_method.py``; about an hour on one core for
all rows in turn. ``--only "sgld prior"`` makes one row, so that several can run side by side; rows lie in ``--out``
and are not made twice. ``--table FILE`` writes all rows that are there as a table. A row's *twin* is the same method
on the same number of steps without clipping and privacy noise: what privacy costs. Settings were fixed beforehand.
"""

import argparse
import json
import resource
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from mnist_bayes import build_cnn, losses, scale

import tacit
from tacit.data import load_mnist

BATCH, SIZE, STEPS, CLIP_NORM, NOISE, DELTA, DRAWS = 256, 60_000, 3516, 1.5, 1.3, 1e-5, 50
METHODS = ("sgd", "sgld", "bbp", "dropout")
ROWS = [f"{method}{prior}{twin}" for method in METHODS for prior in (" prior", "") for twin in ("", " twin")]


def build(name: str) -> tuple[Any, float | None]:
    """The method of a row, and the plan's noise multiplier (None where the method's temperature decides)."""
    prior = tacit.GaussianPrior(0.1) if "prior" in name else tacit.FlatPrior()
    match name.split()[0]:
        case "sgd":
            rate = 0.05 if name.endswith("twin") else 0.25  # without clipping, 0.25 diverges
            return tacit.SGD(build_cnn(), losses, rate, prior, SIZE), NOISE
        case "sgld":  # paper N samples at temperature 1/2; its noise multiplier is 1.272
            step_size = 1e-6 if name.endswith("twin") else 5e-6  # without clipping, 5e-6 diverges
            return tacit.SGLD(build_cnn(), losses, prior, step_size, SIZE, temperature=0.5), None
        case "bbp":
            return tacit.bayes_by_backprop(build_cnn(), losses, dataset_size=SIZE, prior=prior, average=0.99), NOISE
        case _:
            descent = tacit.PlainDescent(0.25)
            return tacit.MCDropout(build_cnn(0.05), losses, descent, prior, SIZE, average=0.99), NOISE


def private(name: str, data: Any, out: Path, steps: int) -> tuple[Any, Any, float]:
    method, multiplier = build(name)
    noise = None if multiplier is None else tacit.GaussianNoise(multiplier=multiplier)
    plan = tacit.TrainingPlan(
        tacit.PoissonSampling.of(batch_size=BATCH, dataset_size=SIZE), tacit.ClipRecords(CLIP_NORM), noise, steps,
        out / name.replace(" ", "-") / "ledger.jsonl", dataset="mnist",
    )  # fmt: skip
    keep = DRAWS if name.startswith("sgld") else 1
    run = tacit.train(method, (data.train_images, data.train_labels), plan, keep_last=min(keep, steps), progress=True)
    [guarantee] = tacit.guarantees(run.ledger, DELTA, only=["pld"])
    return method, run.posterior, guarantee.epsilon


def twin(name: str, data: Any, steps: int) -> tuple[Any, Any]:
    """The same steps on plain mean gradients; a sampler keeps its own Langevin noise."""
    method, _ = build(name)
    state, kept = method.init(), []
    for step, rows in enumerate(_samples(steps)):
        params = {key: value.detach().requires_grad_() for key, value in method.params(state).items()}
        mean = method.losses(params, (data.train_images[rows], data.train_labels[rows])).sum() / BATCH
        gradient = dict(zip(params, torch.autograd.grad(mean, list(params.values())), strict=True))
        stddev = method.noise_stddev(step, BATCH)
        if stddev is not None:
            gradient = {key: value + torch.randn_like(value) * stddev / BATCH for key, value in gradient.items()}
        state = method.step(state, gradient)
        kept = [*kept[1 - DRAWS :], method.params(state)]
    if hasattr(method, "posterior"):
        return method, method.posterior(state)
    return method, tacit.Draws.of(kept) if name.startswith("sgld") else tacit.Point(kept[-1])


def _samples(steps: int) -> Iterator[torch.Tensor]:
    for _ in range(steps):
        yield torch.nonzero(torch.rand(SIZE) < BATCH / SIZE)[:, 0]


def make(name: str, out: Path, steps: int) -> None:
    data, start, epsilon = load_mnist(), time.perf_counter(), None
    if name.endswith("twin"):
        method, posterior = twin(name, data, steps)
    else:
        method, posterior, epsilon = private(name, data, out, steps)
    seconds = time.perf_counter() - start
    posterior = replace(posterior, draws=DRAWS) if hasattr(posterior, "draws") else posterior
    prediction = tacit.predict(method.model, posterior, scale(data.test_images))
    found = tacit.scores(prediction.mean, data.test_labels)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    row = {"row": name, "epsilon": epsilon, **found.to_json(), "seconds": seconds, "memory_mib": memory, "steps": steps}
    (out / f"{name.replace(' ', '-')}.json").write_text(json.dumps(row, indent=2))
    print(json.dumps(row))


def table(out: Path) -> str:
    lines = [
        "| method | prior | epsilon (PLD) | accuracy | ECE | MCE | NLL | twin: accuracy | ECE | NLL | time | memory |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in (row for row in ROWS if not row.endswith("twin")):
        paths = [out / f"{full.replace(' ', '-')}.json" for full in (name, f"{name} twin")]
        if all(path.exists() for path in paths):
            one, other = (json.loads(path.read_text()) for path in paths)
            prior = "N(0, 0.1^2)" if "prior" in name else "none"
            lines.append(
                f"| {name.split()[0]} | {prior} | {one['epsilon']:.4f} | {one['accuracy']:.2%} | {one['ece']:.4f} "
                f"| {one['mce']:.3f} | {one['nll']:.4f} | {other['accuracy']:.2%} | {other['ece']:.4f} "
                f"| {other['nll']:.4f} | {one['seconds']:.0f} s / {other['seconds']:.0f} s "
                f"| {one['memory_mib']:.0f} / {other['memory_mib']:.0f} MiB |"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", choices=ROWS)
    arguments.add_argument("--steps", type=int, default=STEPS)
    arguments.add_argument("--out", type=Path, default=Path("runs/methods"))
    arguments.add_argument("--table", type=Path)
    options = arguments.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in [options.only] if options.only else ROWS:
        if not (options.out / f"{name.replace(' ', '-')}.json").exists():
            make(name, options.out, options.steps)
    print(table(options.out))
    if options.table is not None:
        options.table.write_text(table(options.out))


if __name__ == "__main__":
    main()
