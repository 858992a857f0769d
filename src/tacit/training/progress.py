"""The one progress bar of a private run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_EPSILONS = 20  # how often "epsilon so far" is computed


@contextmanager
def progress_bar(
    steps: int, *, shown: bool, epsilon: Callable[[int], float] | None = None, console: Console | None = None
) -> Iterator[Callable[[int], None]]:
    """A bar, and the function that moves it past a step.

    Args:
        epsilon: what a number of steps costs; shown as "epsilon so far", which holds if a stop ignores the outputs.
    """
    so_far = () if epsilon is None else (TextColumn("epsilon so far {task.fields[epsilon]:.3f}"),)
    columns = (TextColumn("training privately"), BarColumn(), MofNCompleteColumn(), *so_far, TimeRemainingColumn())
    every = max(1, steps // _EPSILONS) if epsilon is not None else 1
    with Progress(*columns, disable=not shown, transient=True, console=console) as bar:
        task = bar.add_task("", total=steps, epsilon=0.0)

        def passed(step: int) -> None:
            if not bar.disable and (step + 1) % every == 0:
                bar.update(task, completed=step + 1, epsilon=0.0 if epsilon is None else epsilon(step + 1))

        yield passed
