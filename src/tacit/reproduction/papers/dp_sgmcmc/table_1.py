"""Paper M, table 1: test accuracies on MNIST and SVHN, private and not; and our own best at the same budgets.

The settings of our rows were fixed before the runs that are reported, on parts of the training data held out for it.
Of SVHN there are only 10,000 of 600,000 training pictures here, and 4,000 test pictures.
"""

from dataclasses import replace
from pathlib import Path
from statistics import mean

import pate_rows
import small_cnn
import torch
from scattered import Recipe, Task, scattered, train_openly, train_privately

from tacit.data import ImageData, load_mnist, load_svhn
from tacit.reproduction import Work

RUNS = 5  # with fresh noise each
AT_099 = Recipe(
    0.99, 1e-5, 60_000, batch=4096, steps=110, mean_noise=30.0, moment_noise=12.0, ridge=0.3, learning_rate=3000.0,
    keep_last=20,
)  # fmt: skip
AT_022 = Recipe(
    0.22, 1e-5, 60_000, batch=4096, steps=110, mean_noise=120.0, moment_noise=48.0, ridge=1.0, learning_rate=1000.0,
    keep_last=20,
)  # fmt: skip
SVHN = Recipe(
    3.0, 1e-6, 10_000, batch=2000, steps=110, mean_noise=12.0, moment_noise=5.0, ridge=1.0, learning_rate=1000.0,
    keep_last=50,
)  # fmt: skip

MIDDLE = (3.0, 2.0)  # of 8 positions a side: the digit that is asked for is in the middle, others are beside it

GNMAX_ON_MNIST = {
    "1.97": pate_rows.Setting(1.97, 1e-5, teachers=250, queries=300, max_answers=200, public=9_000, threshold=0.6,
                              neighbours=10, student_penalty=1.0),
}  # fmt: skip
GNMAX_ON_SVHN = {
    name: pate_rows.Setting(epsilon, 1e-6, teachers=100, queries=400, max_answers=200, public=3_000, threshold=0.4,
                            neighbours=0, student_penalty=0.1)
    for name, epsilon in {"4.96": 4.96, "3": 3.0}.items()
}  # fmt: skip


def reproduce(work: Work) -> None:
    torch.manual_seed(work.seed)
    data = load_mnist()
    if work.quick:
        data = ImageData(
            data.train_images[:600], data.train_labels[:600], data.test_images[:200], data.test_labels[:200]
        )
    on_mnist(work, data)
    on_svhn(work)
    networks(work, data)
    work.note("our rows are the mean over runs with fresh noise; features are fixed and no weight of them was learned")


def on_mnist(work: Work, data: ImageData) -> None:
    rows = ("MNIST: ours at 0.99", "MNIST: ours at 0.22", "MNIST: Confident-GNMax at 1.97")
    if not work.lacks(*(f"{row}: accuracy" for row in rows)):
        return
    train, test = (scattered(images, upright=True) for images in (data.train_images, data.test_images))
    task = Task(train, data.train_labels, test, data.test_labels)
    for name, recipe in (("0.99", AT_099), ("0.22", AT_022)):
        report(work, f"MNIST: ours at {name}", recipe, task)
    for name, setting in GNMAX_ON_MNIST.items():
        report_gnmax(work, f"MNIST: Confident-GNMax at {name}", setting, task)


def on_svhn(work: Work) -> None:
    gnmax = {f"SVHN: Confident-GNMax at {name}": setting for name, setting in GNMAX_ON_SVHN.items()}
    baseline = "SVHN: non-private, linear on the same features"
    if not work.lacks(baseline, *(f"{row}: accuracy" for row in ("SVHN: ours at 3", *gnmax))):
        return
    data = load_svhn()
    few = 600 if work.quick else len(data.train_images)
    train, test = (scattered(images, window=MIDDLE) for images in (data.train_images[:few], data.test_images))
    task = Task(train, data.train_labels[:few], test, data.test_labels)
    if work.lacks(baseline):
        work.measure(baseline, train_openly(task, 2 if work.quick else 15))
    report(work, "SVHN: ours at 3", SVHN, task)
    for row, setting in gnmax.items():
        report_gnmax(work, row, setting, task)


def report(work: Work, row: str, recipe: Recipe, task: Task) -> None:
    if not work.lacks(f"{row}: accuracy"):
        return
    runs = [train_privately(recipe, task, folder_of(work, row)) for _ in range(1 if work.quick else RUNS)]
    work.measure(f"{row}: epsilon", max(run.epsilon for run in runs))
    work.measure(f"{row}: accuracy", mean(run.accuracy for run in runs))
    work.measure(f"{row}: lowest accuracy of the runs", min(run.accuracy for run in runs))
    work.measure(f"{row}: ECE", mean(run.ece for run in runs))
    work.note(f"{row}: accuracy of each run {', '.join(f'{run.accuracy:.2f}' for run in runs)}")


def report_gnmax(work: Work, row: str, setting: pate_rows.Setting, task: Task) -> None:
    if not work.lacks(f"{row}: accuracy"):
        return
    if work.quick:
        setting = replace(setting, teachers=20, public=len(task.test_rows) // 2, neighbours=min(3, setting.neighbours))
    runs = [pate_rows.confident_gnmax(setting, task, folder_of(work, row)) for _ in range(1 if work.quick else RUNS)]
    work.measure(f"{row}: epsilon", max(run.epsilon for run in runs))
    work.measure(f"{row}: accuracy", mean(run.accuracy for run in runs))
    work.measure(f"{row}: answered of {setting.queries}", mean(run.answered for run in runs))
    work.measure(f"{row}: right answers, %", mean(run.right for run in runs))
    work.measure(f"{row}: accuracy of one teacher", mean(run.teacher for run in runs))
    work.note(f"{row}: accuracy of each run {', '.join(f'{run.accuracy:.2f}' for run in runs)}")
    work.note(
        f"{row}: {setting.teachers} teachers; tested on the {len(task.test_rows) - setting.public} test pictures that "
        "the student did not have"
    )


def networks(work: Work, data: ImageData) -> None:
    """One run each."""
    if work.lacks("MNIST: non-private"):
        work.measure("MNIST: non-private", small_cnn.non_private(data, 1 if work.quick else 15))
    if work.lacks("MNIST: DP-SGLD of the paper: accuracy"):
        steps = 20 if work.quick else -(-20 * 60_000 // 128)
        tell(work, "MNIST: DP-SGLD of the paper", small_cnn.dp_sgld(data, steps, work.folder("dp-sgld")))
    for name, epsilon, batch, steps in (("0.5", 0.5, 1024, 300), ("8", 8.0, 256, 3516)):
        row = f"MNIST: DP-SGD at {name}"
        if work.lacks(f"{row}: accuracy"):
            folder = work.folder(f"dp-sgd-{name}")
            tell(work, row, small_cnn.dp_sgd(data, epsilon, batch, 10 if work.quick else steps, folder))


def tell(work: Work, row: str, found: small_cnn.Outcome) -> None:
    work.measure(f"{row}: epsilon", found.epsilon)
    work.measure(f"{row}: accuracy", found.accuracy)


def folder_of(work: Work, row: str) -> Path:
    return work.folder(row.replace(": ", "-").replace(" ", "-"))
