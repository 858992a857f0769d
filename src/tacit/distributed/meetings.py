"""Ranks that share one model must gather its layers at the same time, though each has other records to compute.

A record that makes the losses raise, or that answers a question differently, costs its rank further passes, and another
rank may have nothing to compute at all. So before every pass the ranks *meet*: each says what it wants, the most urgent
wish is granted, and those who want something else take part without anything of their own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tacit.distributed.group import loss
from tacit.distributed.ranks import Ranks
from tacit.errors import TacitError

Result = TypeVar("Result")
DONE, LOOK, GATHER, REDUCE, FAILED = range(5)  # by urgency; a look is a pass that does not go back


class ExchangeError(BaseException):
    """What ranks do in step has failed. Not an Exception: neither a user's ``except Exception`` nor the search for a
    faulty record may take it for a fault of records."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def exchanging() -> Iterator[None]:
    """Around what all ranks do together. A process group says only RuntimeError when a rank is gone."""
    try:
        yield
    except TacitError as error:
        raise ExchangeError(error) from error
    except RuntimeError as error:
        raise ExchangeError(loss(error)) from error


class Meetings:
    """What the ranks of a job do in step.

    Args:
        gathered: takes part in the gathers of a pass (LOOK or GATHER), from the one that is due, without computing
            anything.
        reduced: takes part in the sums of a pass with nothing to add.
    """

    def __init__(self, ranks: Ranks, gathered: Callable[[int], None], reduced: Callable[[], None]) -> None:
        self._ranks, self._gathered, self._reduced = ranks, gathered, reduced

    def until(self, wish: int) -> None:
        """Take part in what others want until this wish is granted."""
        with exchanging():
            while (agreed := self._ranks.most(wish)) != wish:
                if agreed == FAILED:
                    self._ranks.raise_any(None)
                self._reduced() if agreed == REDUCE else self._gathered(agreed)

    def gather(self, compute: Callable[[], Result], kind: int) -> Result:
        """One pass, LOOK or GATHER. Whether or not it succeeds here, all of its gathers are taken part in."""
        self.until(kind)
        try:
            return compute()
        finally:
            with exchanging():
                self._gathered(kind)

    def ended(self, error: BaseException | None) -> None:
        """This rank has computed all that it has to, or cannot go on; then nobody does."""
        if error is None:
            self.until(DONE)
        elif not self._ranks.alone:
            self._ranks.most(FAILED)
            self._ranks.raise_any(error if isinstance(error, Exception) else TacitError(type(error).__name__))
