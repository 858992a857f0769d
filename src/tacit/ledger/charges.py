"""What was charged, in order: kept so that one block more costs the same whatever went before.

A long ledger mostly repeats itself: equal neighbours are kept once with their number. And a longer list of charges
shares what it has in common with the shorter one that it grew from, so that both can be kept and compared.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, overload

from tacit.errors import InputError, LedgerError, check_count
from tacit.ledger.event_json import event_from_json, event_to_json
from tacit.ledger.events import SamplingEvent
from tacit.ledger.sums import MOST


@dataclass(frozen=True, slots=True)
class Charge:
    """``steps`` releases of the same event."""

    event: SamplingEvent
    steps: int

    def __post_init__(self) -> None:
        if not isinstance(self.steps, int) or isinstance(self.steps, bool) or self.steps < 0:
            raise InputError(f"steps must be a whole number of at least 0, found {self.steps!r}")
        if self.steps:
            check_count("steps", self.steps, MOST)


def charges_to_json(charges: Iterable[Charge]) -> list[dict[str, Any]]:
    return [{"steps": charge.steps, "event": event_to_json(charge.event)} for charge in charges]


def charges_from_json(values: Iterable[Mapping[str, Any]]) -> tuple[Charge, ...]:
    return tuple(Charge(event_from_json(value["event"]), value["steps"]) for value in values)


AGAIN = ["again"]
"""What a reserve says in place of its charges when they are those of the block before it, as that was reserved."""


@dataclass(frozen=True, slots=True)
class Block:
    """What one record charged."""

    charges: tuple[Charge, ...] = ()
    steps: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", sum([charge.steps for charge in self.charges]))

    @classmethod
    def from_text(cls, text: bytes) -> "Block":
        """From the JSON of its charges."""
        return cls(charges_from_json(_DECODER.decode(text.decode())))

    def first(self, steps: int) -> "Block":
        """Its first ``steps`` steps; more than it holds is an attempt to rewrite history."""
        if not isinstance(steps, int) or not 0 <= steps <= self.steps:
            raise LedgerError(f"a settle record asks for {steps} steps of a smaller block")
        kept = []
        for charge in self.charges:
            kept.append(Charge(charge.event, min(steps, charge.steps)))
            steps -= kept[-1].steps
        return Block(tuple(kept))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


class Charges(Sequence[Charge]):
    """An unchangeable list of charges in which equal neighbours are one; longer ones share what is below them.

    Example:
        >>> from tacit.ledger import GaussianSumQuery, PoissonSample
        >>> event = PoissonSample(probability=0.01, queries=(GaussianSumQuery(1.0, 1.1),))
        >>> block = Block((Charge(event, 20),))
        >>> short = Charges().plus(block)
        >>> long = short.plus(block).plus(block)
        >>> len(long), long.steps, [charge.steps for charge in long.since(short)]
        (1, 60, [40])
    """

    __slots__ = ("_below", "_block", "_depth", "_times", "_whole", "steps")

    def __init__(self, below: "Charges | None" = None, block: Block | None = None, times: int = 0) -> None:
        self._below = below
        self._block = block
        self._times = times
        self._depth: int = 0 if below is None else below._depth + 1
        self._whole: tuple[Charge, ...] | None = None
        self.steps: int = 0 if below is None or block is None else below.steps + times * block.steps

    @classmethod
    def of(cls, charges: Sequence[Charge]) -> "Charges":
        return charges if isinstance(charges, Charges) else cls().plus(Block(tuple(charges)))

    def plus(self, block: Block) -> "Charges":
        """With one more block at the end."""
        if not block.steps:
            return self
        if self._block is not None and (self._block is block or self._block == block):
            return Charges(self._below, self._block, self._times + 1)
        return Charges(self, block, 1)

    def without(self, steps: int) -> "Charges":
        """Without the last ``steps`` steps."""
        left = self
        while steps > 0 and left._below is not None and left._block is not None:
            size = left._block.steps
            cut = min(left._times, -(-steps // size))  # blocks that lose some or all of their steps
            kept = cut * size - steps
            block = left._block
            left = left._below._with(block, left._times - cut)
            if kept > 0:
                return left.plus(block.first(kept))
            steps -= cut * size
        return left

    def _with(self, block: Block, times: int) -> "Charges":
        return Charges(self, block, times) if times else self

    def since(self, earlier: "Charges") -> list[Charge] | None:
        """What was charged after ``earlier``, from which this grew; None if it did not. Looks at nothing before it."""
        newer: list[tuple[Block, int]] = []
        one: Charges = self
        while one._depth > earlier._depth:
            assert one._block is not None  # only the empty one has depth 0
            assert one._below is not None
            newer.append((one._block, one._times))
            one = one._below
        if one is not earlier:
            if one._block is None or one._below is not earlier._below or one._block is not earlier._block:
                return None
            if one._times < earlier._times:
                return None
            newer.append((one._block, one._times - earlier._times))
        return [charge for block, times in reversed(newer) for charge in _repeated(block, times)]

    def _all(self) -> Iterator[Charge]:
        nodes: list[Charges] = []
        one: Charges | None = self
        while one is not None:
            nodes.append(one)
            one = one._below
        for node in reversed(nodes):
            if node._block is not None:
                yield from _repeated(node._block, node._times)

    def _tuple(self) -> tuple[Charge, ...]:
        if self._whole is None:
            runs = groupby((charge for charge in self._all() if charge.steps), key=_event)
            self._whole = tuple(_joined(list(run)) for _, run in runs)
        return self._whole

    def __iter__(self) -> Iterator[Charge]:
        return iter(self._tuple())

    def __len__(self) -> int:
        return len(self._tuple())

    def __bool__(self) -> bool:
        return self.steps > 0

    @overload
    def __getitem__(self, index: int) -> Charge: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Charge, ...]: ...
    def __getitem__(self, index: int | slice) -> Charge | tuple[Charge, ...]:
        return self._tuple()[index]

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Sequence) and self._tuple() == tuple(other))

    def __hash__(self) -> int:
        return hash(self._tuple())

    def __repr__(self) -> str:
        return repr(self._tuple())

    def __reduce__(self) -> tuple[Any, ...]:
        return Charges.of, (self._tuple(),)  # as a plain list: one inside the other, they are too deep to pickle


def _event(charge: Charge) -> SamplingEvent:
    return charge.event


def _joined(run: list[Charge]) -> Charge:
    return run[0] if len(run) == 1 else Charge(run[0].event, sum(charge.steps for charge in run))


def _repeated(block: Block, times: int) -> Iterator[Charge]:
    if len(block.charges) == 1 and times > 1:
        yield Charge(block.charges[0].event, times * block.steps)
    else:
        for _ in range(times):
            yield from block.charges
