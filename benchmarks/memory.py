"""What a large sample takes in memory: the peak of a fresh process, beyond that of a sample of one record.

    python benchmarks/memory.py --records 4000 --budget 64

Pictures of 3 x 96 x 96 are made one at a time by a map-style data set, or lie in one tensor; the network has three
convolutions. Every record is drawn, so that the sample has exactly the size that is asked for.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

import tacit

SHAPE = (3, 96, 96)
KINDS = ("data set", "data set, 2 workers", "tensors", "views")


class Pictures(Dataset[Any]):
    """Made when they are asked for, as a folder of files would be read."""

    def __init__(self, records: int) -> None:
        self.records = records

    def __len__(self) -> int:
        return self.records

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        generator = torch.Generator().manual_seed(row)
        return torch.rand(SHAPE, generator=generator), row % 10


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(32, 32, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def losses(model: nn.Module, batch: Any) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def flipped(batch: Any) -> Any:
    return batch[0].flip(-1), batch[1]


def peak_of(kind: str, records: int, budget: int | None, steps: int) -> None:
    """Some steps in this process, whose peak is printed, and the seconds of a step."""
    torch.manual_seed(0)
    model = network()
    data: Any = Pictures(records)
    if kind == "tensors":
        data = torch.rand(records, *SHAPE), torch.arange(records) % 10
    held = _resident("VmRSS") if kind == "tensors" else 0.0
    options = {"memory": budget} if budget is not None else {}
    more: dict[str, Any] = {"augment": flipped, "views": 2} if kind == "views" else {}
    more |= {"workers": 2} if "workers" in kind else {}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tempfile.TemporaryDirectory() as folder:
        private = tacit.PrivateGradient(
            model, losses, tacit.PoissonSampling(1.0, records), tacit.ClipRecords(1.0), tacit.GaussianNoise(1.0),
            ledger=f"{folder}/ledger.jsonl", **options,
        )  # fmt: skip
        start = time.perf_counter()
        for sample in private.samples(data, steps=steps, **more):
            optimizer.zero_grad()
            private.backward(sample)
            optimizer.step()
    print(_resident("VmHWM") - held, (time.perf_counter() - start) / steps)


def _resident(field: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return float(line.split()[1]) / 1024


def measured(kind: str, records: int, budget: int | None, steps: int) -> tuple[float, float]:
    """Peak in MiB, and seconds of a step, of a fresh process."""
    command = [sys.executable, __file__, "--of", kind, "--records", str(records), "--steps", str(steps)]
    command += [] if budget is None else ["--budget", str(budget)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak, seconds = map(float, done.stdout.split()[-2:])
    return peak, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=4000)
    parser.add_argument("--budget", type=int, help="MiB; a share of what is free by default")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(2)
    if options.of:
        peak_of(options.of, options.records, options.budget, options.steps)
        return
    print("| records from | grows by | s a step |\n|---|---|---|")
    for kind in options.kinds:
        alone, _ = measured(kind, 1, options.budget, options.steps)
        peak, seconds = measured(kind, options.records, options.budget, options.steps)
        print(f"| {kind} | {peak - alone:.0f} MiB | {seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
