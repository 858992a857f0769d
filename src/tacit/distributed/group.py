"""The process group through which the ranks of a job speak: one of gloo, in main memory, whatever the job's backend is.

PyTorch owns it, and it is held weakly: a reference of ours would outlive ``destroy_process_group``. Its threads would
not be joined, and one that drops its last work while the interpreter goes down aborts the process ("terminate called
without an active exception").
"""

import atexit
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from tacit.errors import InputError, RankLostError, check_positive

PATIENCE = "TACIT_RANK_PATIENCE"  # seconds, in the environment: how long ranks wait for one that is silent
_SECONDS = 50.0

_ours: "weakref.ref[Any] | None" = None
_lost: RankLostError | None = None  # once a rank is gone, nobody waits for it again


def group() -> Any:
    """The group, made by all ranks together where they first need it, and anew after its world has ended."""
    global _ours, _lost
    found = None if _ours is None else _ours()
    if found is None or not _is_alive(found):
        if _ours is None:
            atexit.register(_leave)
        found, _lost = dist.new_group(backend="gloo", timeout=timedelta(seconds=patience())), None
        _ours = weakref.ref(found)
    return found


@contextmanager
def speaking() -> Iterator[Any]:
    """The group, for an exchange. One that fails, or waits too long for a rank, is the end of the job."""
    found = group()
    if _lost is not None:
        raise RankLostError(str(_lost))
    try:
        yield found
    except RuntimeError as error:
        raise loss(error) from error


def loss(error: RuntimeError) -> RankLostError:
    """What a process group says when a rank is gone, as our error; nobody waits for that rank again."""
    global _lost
    said = (str(error).splitlines() or [""])[0].partition("]")[2].strip() or str(error)
    _lost = RankLostError(
        f"a rank of this job is gone or was silent for {patience():g} s ({PATIENCE} says how long is too long): "
        f"{said[:200]}; what was charged stays charged: start the job again, with any number of ranks, from its "
        "last checkpoint"
    )
    return _lost


def has_lost() -> bool:
    """Whether the ranks can no longer speak."""
    return _lost is not None


def patience() -> float:
    """Seconds that ranks wait for one that is silent."""
    try:
        found = float(os.environ.get(PATIENCE, _SECONDS))
    except ValueError as error:
        raise InputError(f"{PATIENCE} is a number of seconds, found {os.environ[PATIENCE]!r}") from error
    check_positive(PATIENCE, found)
    return found


def _is_alive(found: Any) -> bool:
    """Whether PyTorch still knows the group; it ends with its world."""
    try:
        return bool(dist.get_process_group_ranks(found))
    except KeyError:
        return False


def _leave() -> None:
    """End the groups before the interpreter does, where the program has not done so itself."""
    if dist.is_initialized():
        dist.destroy_process_group()
