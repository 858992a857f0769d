"""An easy digit, a hard digit, and clothes: what a private Bayesian network knows that it does not know.

Run with ``TACIT_DATA`` naming the data folder: ``python examples/digits_it_doubts.py [--steps N] [--out FOLDER]``.
Trains paper N's network by DP-SGLD with prior at its budget (epsilon 0.894 by PLD), shows the surest and the least sure
test digit with the spread of its predictions over draws (paper N, figures 6 and 7), and asks the same network about
Fashion-MNIST, which it has never heard of.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from mnist_bayes import build_cnn, losses, scale

import tacit
from tacit.data import load_fashion_mnist, load_mnist

SIZE, DRAWS, SHOWN = 60_000, 50, 2_000


def train(data: Any, steps: int, out: Path) -> tuple[torch.nn.Module, tacit.Draws]:
    model = build_cnn()
    method = tacit.SGLD(model, losses, tacit.GaussianPrior(0.1), 5e-6, SIZE, temperature=0.5)
    sampling = tacit.PoissonSampling.of(batch_size=256, dataset_size=SIZE)
    plan = tacit.TrainingPlan(sampling, tacit.ClipRecords(1.5), None, steps, out / "ledger.jsonl", dataset="mnist")
    images = (data.train_images, data.train_labels)
    run = tacit.train(method, images, plan, keep_last=min(DRAWS, steps), progress=True)
    print(run.summary)
    run.posterior.save(out / "model.safetensors")
    return model, run.posterior


def draw(
    path: Path, model: torch.nn.Module, posterior: tacit.Draws, images: torch.Tensor, which: dict[str, int]
) -> None:
    """Each digit beside the probability of every class under every draw: a box for each class."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(len(which), 2, figsize=(8, 3 * len(which)), layout="constrained")
    for (left, right), (name, index) in zip(panels, which.items(), strict=True):
        one = scale(images[index : index + 1])
        with torch.no_grad():
            chosen = [torch.func.functional_call(model, params, (one,)).softmax(1)[0] for params in posterior]
        left.imshow(images[index, 0], cmap="gray_r")
        left.set(title=name, xticks=[], yticks=[])
        right.boxplot(torch.stack(chosen).numpy(), tick_labels=[str(digit) for digit in range(10)])
        right.set(xlabel="digit", ylabel="probability over draws", ylim=(0, 1))
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=3516)
    arguments.add_argument("--out", type=Path, default=Path("runs/digits"))
    options = arguments.parse_args()
    data, clothes = load_mnist(), load_fashion_mnist()
    model, posterior = train(data, options.steps, options.out)
    known = tacit.predict(model, posterior, scale(data.test_images[:SHOWN]))
    unknown = tacit.predict(model, posterior, scale(clothes.test_images[:SHOWN]))
    easy, hard = int(known.entropy.argmin()), int(known.entropy.argmax())
    for name, index in (("easy", easy), ("hard", hard)):
        truth, said = int(data.test_labels[index]), int(known.classes[index])
        print(
            f"{name}: a {truth}, taken for {said} with {known.confidence[index]:.2f}; uncertainty "
            f"{known.entropy[index]:.2f} nats, {known.mutual_information[index]:.3f} of it about the weights"
        )
    print(
        f"digits from clothes: by entropy {tacit.separation(known.entropy, unknown.entropy):.3f}, by mutual "
        f"information {tacit.separation(known.mutual_information, unknown.mutual_information):.3f} (area under the ROC)"
    )
    draw(options.out / "digits.png", model, posterior, data.test_images, {"easy": easy, "hard": hard})


if __name__ == "__main__":
    main()
