"""From records to charges: the one place that knows what each kind of record means."""

from collections.abc import Mapping, Sequence
from typing import Any

from tacit.errors import LedgerError, check_count
from tacit.ledger.events import event_from_json, event_to_json
from tacit.ledger.ledger import Charge, Ledger, LedgerHeader

FORMAT = 1


def charges_to_json(charges: Sequence[Charge]) -> list[dict[str, Any]]:
    return [{"steps": charge.steps, "event": event_to_json(charge.event)} for charge in charges]


def charges_from_json(values: Sequence[Mapping[str, Any]]) -> tuple[Charge, ...]:
    return tuple(Charge(event_from_json(value["event"]), value["steps"]) for value in values)


class Replay:
    """Folds records, in order, into a :class:`Ledger`. Reading and writing share it, so they cannot disagree."""

    def __init__(self) -> None:
        self._header: LedgerHeader | None = None
        self._blocks: dict[int, tuple[Charge, ...]] = {}
        self._last_block: tuple[Charge, ...] = ()
        self._planned = 0
        self._runs = 0
        self._count = 0

    def apply(self, record: Mapping[str, Any]) -> None:
        self._count += 1
        try:
            self._apply(record)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LedgerError(f"record {self._count} cannot be read: {error}") from error

    def _apply(self, record: Mapping[str, Any]) -> None:
        match record["record"]:
            case "open" if self._header is None:
                if record["format"] != FORMAT:
                    raise LedgerError(f"the ledger has format {record['format']}, this version reads {FORMAT}")
                values = dict(record["header"])
                values["assumptions"] = tuple(values["assumptions"])
                self._header = LedgerHeader(**values)
            case _ if self._header is None:
                raise LedgerError("the first record of a ledger must be 'open'")
            case "reserve" | "void":
                self._blocks[self._count] = block = charges_from_json(record["charges"])
                self._last_block = block or self._last_block
            case "settle":
                block = self._blocks[record["reserve"]]
                self._blocks[record["reserve"]] = _first_steps(block, record["steps"])
            case "note":
                if "planned_steps" in record:
                    check_count("planned_steps", record["planned_steps"])
                    self._planned += record["planned_steps"]
                    self._runs += 1
            case "checkpoint" | "release":
                pass
            case kind:
                raise LedgerError(f"record {self._count} is of an unknown kind {kind!r}; it may have been a charge")

    @property
    def torn_block(self) -> tuple[Charge, ...]:
        """What a torn reserve is charged as: the newest block as it was reserved, or the rest of what was planned.

        The last block of a run may be shorter than the others, and the budget was asked for no more.
        """
        left, steps = self._planned - self.ledger.steps, _steps(self._last_block)
        return _first_steps(self._last_block, min(left, steps)) if left > 0 else self._last_block

    def block_steps(self, number: int) -> int:
        return _steps(self._blocks[number])

    @property
    def ledger(self) -> Ledger:
        if self._header is None:
            raise LedgerError("a ledger without an 'open' record says nothing")
        charges = tuple(charge for block in self._blocks.values() for charge in block if charge.steps)
        return Ledger(self._header, charges, planned_steps=self._planned, runs=self._runs)


def _first_steps(block: tuple[Charge, ...], steps: int) -> tuple[Charge, ...]:
    """The first ``steps`` steps of a block; more than it holds is an attempt to rewrite history."""
    if not isinstance(steps, int) or not 0 <= steps <= _steps(block):
        raise LedgerError(f"a settle record asks for {steps} steps of a smaller block")
    kept = []
    for charge in block:
        kept.append(Charge(charge.event, min(steps, charge.steps)))
        steps -= kept[-1].steps
    return tuple(kept)


def _steps(block: tuple[Charge, ...]) -> int:
    return sum(charge.steps for charge in block)
