"""Records together where they behave alike, apart where they do not, and what happens to one never depends on another.

A record's result is a function of the record alone: rows that answer a question of the losses differently are run in
parts; a record that makes the losses raise is found by halving and contributes nothing; what vmap cannot do is done one
record after the other. Each part is filled up to a multiple of eight rows, sixteen at least: with other numbers
libraries take other kernels, or deal the work out to threads in another way, whose last bits differ, and one record
more would show in the gradients of all others. On one and two threads none of 561 drawn models showed that so; on three
and four 16 of 581 still did, and the same ones with multiples of sixteen.
"""

import math
import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from tacit.errors import LossesError
from tacit.gradients.isolation import SplitError, UncoveredError

Places = npt.NDArray[np.int64]

_LEAST, _STEP = 16, 8  # rows
_VMAP = re.compile(
    r"vmap|functorch|batching rule|Batched|in_dims|does not have a storage|data-dependent", re.IGNORECASE
)
_DYNAMIC = re.compile(r"dynamic shape.*aten::(\w+)")
_INTO_FRESH = re.compile(r"vmap: (inplace|aten::)|existing Tensor|inplace arithmetic", re.IGNORECASE)


def run_apart(
    places: Places,
    together: Callable[[Places, Places], None],
    alone: Callable[[Places], None],
    rows_each: int = 1,
) -> list[str]:
    """Run all places, and say why some of them had to be run alone.

    Args:
        together: runs some places at once; gets them, and them filled up (:func:`filled`).
        alone: runs places one after the other; it may not raise for what a single record does.
        rows_each: rows of a place. A question is put to every row, and a place whose own rows differ is run alone.
    """
    reasons: list[str] = []
    waiting = [places]
    while waiting:
        some = waiting.pop()
        try:
            together(some, filled(some, rows_each))
        except SplitError as split:
            waiting += _by_answer(some, split, rows_each, alone)
        except UncoveredError as uncovered:
            reasons.append(str(uncovered))
            alone(some)
        except (LossesError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            if is_limit_of_vmap(error):
                reasons.append(_reason(error))
                alone(some)
            elif len(some) == 1:
                alone(some)
            else:
                half = len(some) // 2
                waiting += [some[half:], some[:half]]
    return reasons


def filled(places: Places, rows_each: int) -> Places:
    """The same with the last one repeated, up to a multiple of eight rows, sixteen at least."""
    step = _STEP // math.gcd(_STEP, rows_each)
    missing = -(-max(len(places), _LEAST / rows_each) // step) * step - len(places)
    return np.append(places, places[-1:].repeat(int(missing))) if missing else places


def _by_answer(some: Places, split: SplitError, rows_each: int, alone: Callable[[Places], None]) -> list[Places]:
    """The places in parts of one answer; those whose own rows differ are run alone at once."""
    answers = np.asarray(split.answers).reshape(-1, rows_each)[: len(some)]
    agreed = (answers == answers[:, :1]).all(1)
    if not agreed.all():
        alone(some[~agreed])
    return [some[agreed & (answers[:, 0] == answer)] for answer in np.unique(answers[agreed, 0])]


def is_limit_of_vmap(error: Exception) -> bool:
    """Whether an error says what vmap cannot do, which is the same for all rows that came so far."""
    if "can't allocate memory" in str(error):
        raise error  # of the machine, not of a record
    return isinstance(error, RuntimeError | NotImplementedError | ValueError) and bool(_VMAP.search(str(error)))


def _reason(error: Exception) -> str:
    said = str(error).splitlines()[0]
    found = _DYNAMIC.search(said)
    if found is None:
        return said
    return (
        f"{found[1]} gives a tensor whose shape depends on a record's values; use a mask instead (experts of Hugging "
        'Face models: model.set_experts_implementation("grouped_mm"))'
    )


def writes_into_fresh(error: Exception) -> bool:
    """Whether data was written into a tensor that the losses had made of nothing: ``torch.zeros(3).add_(x)``."""
    return isinstance(error, RuntimeError) and bool(_INTO_FRESH.search(str(error)))
