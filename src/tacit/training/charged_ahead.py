"""Blocks that are charged before their steps begin, and how far the steps have come in them."""

from collections import deque


def whole_passes(steps: int, each: int) -> int:
    """The steps of all passes that so many steps touch."""
    return -(-steps // each) * each


class ChargedAhead:
    """The blocks of one loop that have steps left; those that are used up are forgotten, however long it runs.

    Example:
        >>> ahead = ChargedAhead(steps_per_pass=1)
        >>> ahead.charge(number=3, steps=20)
        >>> ahead.begin()
        >>> ahead.begun()
        {3: 1}
    """

    def __init__(self, steps_per_pass: int) -> None:
        self._each = steps_per_pass
        self._blocks: deque[tuple[int, int]] = deque()
        self._begun = 0  # steps of these blocks

    def charge(self, number: int, steps: int) -> None:
        """A block, by its number in the ledger."""
        self._blocks.append((number, steps))

    def begin(self) -> None:
        """The next step."""
        self._begun += 1
        if self._begun == self._blocks[0][1]:
            self._blocks.popleft()
            self._begun = 0

    def begun(self) -> dict[int, int]:
        """Of each block that is not used up, by its number, the steps that have begun; passes are whole."""
        left, found = whole_passes(self._begun, self._each), {}
        for number, steps in self._blocks:
            if left < steps:
                found[number] = left
            left = max(0, left - steps)
        return found
