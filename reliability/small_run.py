"""A run that takes a few milliseconds, for proofs that need many of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

import tacit

STEPS, BLOCK = 30, 8


class StoppedError(Exception):
    """Raised in the middle of a run, as Ctrl-C would be."""


def losses(model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return (model(batch[0])[:, 0] - batch[1]).square()


def plan(folder: Path, steps: int = STEPS, multiplier: float = 1.0) -> tacit.TrainingPlan:
    noise = tacit.GaussianNoise(multiplier=multiplier)
    return tacit.TrainingPlan(
        tacit.PoissonSampling(0.5, 20), tacit.ClipRecords(1.0), noise, steps, folder / "ledger.jsonl", block=BLOCK
    )


def data() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(40, 16, dtype=torch.float64), torch.zeros(40, dtype=torch.float64)


def train(
    folder: Path, *, steps: int = STEPS, stop_at: int | None = None, seen: Callable[[torch.Tensor], None] | None = None
) -> tacit.training.Run | None:
    """Go on with the run in a folder; None if it was stopped after ``stop_at`` steps. ``seen`` gets every release.

    On data of zeros the gradients are zero, so that a release is noise and nothing else.
    """
    model = torch.nn.Linear(16, 1, bias=False, dtype=torch.float64)
    method = tacit.SGD(model, losses, 0.1)

    def stop(step: int) -> None:
        if stop_at is not None and step + 1 == stop_at:
            raise StoppedError

    try:
        with _shown(seen):
            return tacit.train(
                method, data(), plan(folder, steps), checkpoint=folder / "checkpoint", resume=True, on_step=stop
            )
    except StoppedError:
        return None


@contextmanager
def _shown(seen: Callable[[torch.Tensor], None] | None) -> Iterator[None]:
    step = tacit.SGD.step

    def shown(method, state, mean_gradient):  # type: ignore[no-untyped-def]
        if seen is not None:
            for value in mean_gradient.values():
                seen(value)
        return step(method, state, mean_gradient)

    tacit.SGD.step = shown  # type: ignore[method-assign]
    try:
        yield
    finally:
        tacit.SGD.step = step  # type: ignore[method-assign]
