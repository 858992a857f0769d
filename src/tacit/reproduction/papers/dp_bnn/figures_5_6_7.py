"""Paper N, figures 5 to 7: what 100 draws say of an easy 2 and of a hard 3, by the MLP, private and not.

The paper does not say which digits it took. Here: of the first 1,000 of the test set, the 2 whose truth is most
probable and the 3 whose truth is least probable, over all fits together.
"""

import matplotlib.pyplot as plt
import torch
from dp_bnn.mnist import BAYESIAN, SHOWN, Fit, Setting, fit

from tacit.data import load_mnist
from tacit.reproduction import Work

EASY, HARD = 2, 3


def reproduce(work: Work) -> None:
    chosen = [Setting("mlp", method, True, private) for private in (False, True) for method in BAYESIAN]
    fits = {setting: fit(work, setting) for setting in chosen if work.wants(setting.name)}
    if not fits:
        return
    digits = {"easy 2": _digit(fits, EASY, best=True), "hard 3": _digit(fits, HARD, best=False)}
    for name, (truth, index) in digits.items():
        for setting, found in fits.items():
            probabilities = found.draws[:, index, truth].double()
            work.measure(f"{setting.name}, {name}: probability of the truth", float(probabilities.mean()))
            work.measure(f"{setting.name}, {name}: spread over draws", float(probabilities.std(correction=0)))
        _draw(work, fits, name, index)
        work.note(f"{name} is number {index} of the test set")
    _show(work, digits)


def _digit(fits: dict[Setting, Fit], truth: int, *, best: bool) -> tuple[int, int]:
    labels = next(iter(fits.values())).labels[:SHOWN]
    probability = torch.stack([found.draws[:, :, truth].float().mean(0) for found in fits.values()]).mean(0)
    probability[labels != truth] = -1.0 if best else 2.0
    return truth, int(probability.argmax() if best else probability.argmin())


def _draw(work: Work, fits: dict[Setting, Fit], name: str, index: int) -> None:
    """A panel for each fit: how often each probability was predicted, a colour for each class (figures 6 and 7)."""
    figure, axes = plt.subplots(2, -(-len(fits) // 2), figsize=(13, 6), squeeze=False)
    bins = torch.linspace(0, 1, 41).numpy()
    for panel, (setting, found) in zip(axes.flat, fits.items(), strict=False):
        for digit in range(10):
            panel.hist(found.draws[:, index, digit].float().numpy(), bins, alpha=0.6, label=str(digit))
        panel.set(title=f"{setting.name}: {name}", xlabel="predicted probability", ylabel="draws")
    axes[0, 0].legend(frameon=False, fontsize=7, ncol=2)
    figure.tight_layout()
    work.picture(figure, name.replace(" ", "-"))
    plt.close(figure)


def _show(work: Work, digits: dict[str, tuple[int, int]]) -> None:
    images = load_mnist().test_images
    figure, axes = plt.subplots(1, len(digits), figsize=(4, 2.2))
    for panel, (name, (_, index)) in zip(axes, digits.items(), strict=True):
        panel.imshow(images[index, 0].numpy(), cmap="gray_r")
        panel.set(title=name, xticks=[], yticks=[])
    work.picture(figure, "digits")
    plt.close(figure)
