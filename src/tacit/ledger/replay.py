"""From records to charges: the one place that knows what each kind of record means."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from tacit.errors import LedgerError, check_count
from tacit.ledger.chain import Record
from tacit.ledger.charges import AGAIN, Block, Charge, Charges, charges_from_json, charges_to_json
from tacit.ledger.ledger import Ledger, LedgerHeader

FORMAT = 1
_NOTHING = Block()


class Replay:
    """Folds records, in order, into a :class:`Ledger`. Reading and writing share it, so they cannot disagree."""

    def __init__(self) -> None:
        self._header: LedgerHeader | None = None
        # What each record charged, the same one for equal neighbours. Most of what is read nobody ever looks at: it
        # stays text until somebody does.
        self._blocks: list[Block | bytes] = []
        self._last_block: Block | bytes = _NOTHING  # as it was reserved
        self._charges = Charges()
        self._folded = 0  # how many of the blocks are in it: they are put there when somebody asks
        self._planned = 0
        self._runs = 0

    def read(self, records: Iterable[Record]) -> None:
        """The next records as a chain gives them."""
        for record in records:
            if isinstance(record, dict):
                self.apply(record)
                continue
            if self._header is None:
                raise LedgerError(_NOT_OPENED)
            self._blocks.append(_NOTHING)
            if record == _AGAIN:
                self._charge_again()
            else:
                self._charge(self._last_block if record == self._last_block else record)

    def apply(self, record: Block | Mapping[str, Any]) -> None:
        """The next record; a reserve may also come as the block that it charges."""
        looked_at = self._folded == len(self._blocks) > 0
        self._blocks.append(_NOTHING)
        try:
            if isinstance(record, Block):
                self._charge(self._last_block if self._last_block == record else record)
            else:
                self._apply(record)
        except _UNREADABLE as error:
            raise LedgerError(f"record {len(self._blocks)} cannot be read: {error}") from error
        if looked_at:  # so that looking changes nothing from then on
            self._fold()

    def _charge(self, block: Block | bytes) -> None:
        self._blocks[-1] = self._last_block = block

    def _charge_again(self) -> None:
        if self._last_block is _NOTHING:
            raise LedgerError(f"record {len(self._blocks)} charges a block again, and there is none before it")
        self._blocks[-1] = self._last_block

    def charges_to_json(self, block: Block) -> list[Any]:
        """How a reserve of this block is written next: what is charged again is not spelled out again."""
        return AGAIN if block.charges and block == self._last_block else charges_to_json(block.charges)

    def _apply(self, record: Mapping[str, Any]) -> None:
        match record["record"]:
            case "open" if self._header is None:
                if record["format"] != FORMAT:
                    raise LedgerError(f"the ledger has format {record['format']}, this version reads {FORMAT}")
                self._header = LedgerHeader.from_json(record["header"])
            case _ if self._header is None:
                raise LedgerError(_NOT_OPENED)
            case "reserve" if record["charges"] == AGAIN:
                self._charge_again()
            case "reserve" | "void":
                block = Block(charges_from_json(record["charges"]))
                if block.charges:  # a void may stand for nothing
                    self._charge(block)
            case "settle":
                number, steps = record["reserve"], record["steps"]
                self._charges = self._settled({number: steps})
                self._blocks[number - 1] = self._block(number).first(steps)
            case "note":
                if "planned_steps" in record:
                    check_count("planned_steps", record["planned_steps"])
                    self._planned += record["planned_steps"]
                    self._runs += 1
            case "checkpoint" | "release":
                pass
            case kind:
                raise LedgerError(
                    f"record {len(self._blocks)} is of an unknown kind {kind!r}; it may have been a charge"
                )

    @property
    def torn_block(self) -> tuple[Charge, ...]:
        """What a torn reserve is charged as: the newest block as it was reserved, or the rest of what was planned.

        The last block of a run may be shorter than the others, and the budget was asked for no more.
        """
        left, block = self._planned - self.ledger().steps, _read(self._last_block)
        return (block.first(min(left, block.steps)) if left > 0 else block).charges

    def block_steps(self, number: int) -> int:
        return self._block(number).steps

    def _block(self, number: int) -> Block:
        if type(number) is not int or not 0 < number <= len(self._blocks) or self._blocks[number - 1] is _NOTHING:
            raise LedgerError(f"a settle record names record {number!r}, which charged nothing")
        return self._read(number)

    def _read(self, number: int) -> Block:
        block = self._blocks[number - 1]
        if not isinstance(block, Block):
            block = self._blocks[number - 1] = _read(block)
        return block

    @property
    def header(self) -> LedgerHeader:
        if self._header is None:
            raise LedgerError("a ledger without an 'open' record says nothing")
        return self._header

    def ledger(self, settled: Mapping[int, int] | None = None) -> Ledger:
        """All that was charged; with ``settled``, as if these blocks had been settled at so many steps."""
        return Ledger(self.header, self._settled(settled or {}), planned_steps=self._planned, runs=self._runs)

    def _settled(self, steps: Mapping[int, int]) -> Charges:
        """Only what comes after the first of these blocks is counted anew: mostly little, as the last are settled."""
        self._fold()
        if not steps:
            return self._charges
        first = min(steps)
        for number in steps:
            self._block(number)
        tail = [self._read(number) for number in range(first, len(self._blocks) + 1)]
        charges = self._charges.without(sum(block.steps for block in tail))
        for number, block in enumerate(tail, start=first):
            charges = charges.plus(block.first(steps[number]) if number in steps else block)
        return charges

    def _fold(self) -> None:
        text, last = b"", _NOTHING
        for place in range(self._folded, len(self._blocks)):
            found = self._blocks[place]
            if not isinstance(found, Block):
                if found is not text:
                    try:
                        text, last = found, _read(found)
                    except (LedgerError, *_UNREADABLE) as error:
                        raise LedgerError(f"record {place + 1} cannot be read: {error}") from error
                self._blocks[place] = found = last
            self._charges = self._charges.plus(found)
            self._folded = place + 1


def _read(block: Block | bytes) -> Block:
    return block if isinstance(block, Block) else Block.from_text(block)


_AGAIN = json.dumps(AGAIN).encode()
_UNREADABLE = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError)
_NOT_OPENED = "the first record of a ledger must be 'open'"
