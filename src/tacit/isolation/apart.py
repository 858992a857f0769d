"""Records together where they behave alike, apart where they do not, and what happens to one never depends on another.

A record's result is a function of the record alone: rows that answer a question of the losses differently are run in
parts; a record that makes the losses raise is found by halving and contributes nothing; what vmap cannot do is done one
record after the other. The last bits must not depend on the others either: through a tie, or a hash of an activation,
they decide whole gradients. So each part is filled up to sixteen rows at least, and to a multiple (:class:`Fill`) with
which no operation of these losses treats its last rows in another way (and a little further, so that fewer sizes come
up: where a library makes code for each, a new one takes 5 to 12 % longer). Where a row lies does not matter because
``import tacit`` sets MKL_CBWR (bit for bit the same so: tests/gradients/test_company.py).
"""

import dis
import math
import re
from collections.abc import Callable

import numpy as np
import torch

from tacit.errors import LossesError
from tacit.isolation.rows import RowsError, SplitError, UncoveredError
from tacit.losses import Fill, Places

_RAISES = {dis.opmap["RAISE_VARARGS"], dis.opmap["RERAISE"]}
_VMAP = re.compile(
    r"vmap|functorch|batching rule|Batched|in_dims|does not have a storage|data-dependent", re.IGNORECASE
)
_DYNAMIC = re.compile(r"dynamic shape.*aten::(\w+)")
_INTO_FRESH = re.compile(r"vmap: (inplace|aten::)|vmap: \w+_\(|existing Tensor|inplace arithmetic", re.IGNORECASE)


def run_apart(
    places: Places,
    together: Callable[[Places, Places], None],
    alone: Callable[[Places], None],
    rows_each: int = 1,
    fill: Fill | None = None,
) -> list[str]:
    """Run all places, and say why some of them had to be run alone.

    Args:
        together: runs some places at once; gets them, and them filled up.
        alone: runs places one after the other; it may not raise for what a single record does.
        rows_each: rows of a place. A question is put to every row, and a place whose own rows differ is run alone.
        fill: what is known of these losses.
    """
    fill = fill or Fill()
    reasons: list[str] = []
    failed = 0
    waiting = [places]
    while waiting:
        some = waiting.pop()
        try:
            together(some, fill(some, rows_each))
        except RowsError as error:
            fill.multiple = math.lcm(fill.multiple, error.multiple)
            waiting.append(some)
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
                failed += 1
                if failed == len(places) > 1:  # no fault of a record: all of them
                    reasons.append(f"computed together each of the records raises {type(error).__name__}")
            else:
                half = len(some) // 2
                waiting += [some[half:], some[:half]]
    return reasons


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
    of_vmap = isinstance(error, RuntimeError | NotImplementedError | ValueError) and bool(_VMAP.search(str(error)))
    return of_vmap and not _is_raised_by_user(error)


def _is_raised_by_user(error: Exception) -> bool:
    """By a ``raise`` outside of PyTorch: then it is about one record, whatever its words, and others go on together."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    code = trace.tb_frame.f_code
    return code.co_code[trace.tb_lasti] in _RAISES and not code.co_filename.startswith(torch.__path__[0])


def _reason(error: Exception) -> str:
    """Which operation cannot be computed for many records at once, and what to do."""
    said = str(error).splitlines()[0]
    found, operation = _DYNAMIC.search(said), vars(error).get("operation", "")
    if found is not None:
        return (
            f"{found[1]} gives a tensor whose shape depends on a record's values; use a mask instead (experts of "
            'Hugging Face models: model.set_experts_implementation("grouped_mm"))'
        )
    if "random operation" in said:
        return (
            f"{operation} draws for one record at a time; torch.rand, randn, normal, bernoulli and the *_like "
            "functions draw for many"
        )
    return f"{operation} has no rule for many records at once ({said})" if operation else said


def writes_into_fresh(error: Exception) -> bool:
    """Whether data was written into a tensor that the losses had made of nothing: ``torch.zeros(3).add_(x)``."""
    return isinstance(error, RuntimeError) and bool(_INTO_FRESH.search(str(error)))
