"""Where several processes share a run: who draws which units, whose sums are added, and who adds the noise."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tacit.distributed import Ranks, release_together
from tacit.distributed.whole_sums import added, whole_sums
from tacit.errors import InputError
from tacit.gradients import ClippedSum
from tacit.mechanisms import AdaptiveClip
from tacit.randomness import Randomness
from tacit.training.plan import PrivacyPlan
from tacit.training.reading.samples import Drawn
from tacit.types import Indices, Vectors

_BLOCK = 256  # units, about, of a sample that are summed at a time where sums are to be deterministic
_ANY_SAMPLE = 1 << 62  # so many records that none are added up in float32, whatever the number here


@dataclass(frozen=True, slots=True)
class SeveralRanks:
    """The ranks of a job under one plan; also one process whose bits are to be those of any number of them.

    Args:
        shards: a tacit.distributed.shards.ShardedSums, where the model is in shards.
        sum_of: the clipped sum of what was drawn, at given parameters.
    """

    plan: PrivacyPlan
    ranks: Ranks
    randomness: Randomness
    shards: Any
    sum_of: Callable[..., ClippedSum]

    @property
    def are_needed(self) -> bool:
        return not self.ranks.alone or self.shards is not None or self.plan.deterministic

    @property
    def width(self) -> int | None:
        """How many units are owned, and summed, together where sums are to be deterministic: a public number."""
        if not self.plan.deterministic:
            return None
        rate = self.plan.sampling.denominator / self.plan.sampling.implied_size
        return max(1, round((self.plan.physical_batch or _BLOCK) / rate))

    def check(self, *, looks_at_all: bool) -> None:
        """Refuse what cannot be dealt out; ``looks_at_all``: evidence is gathered, or records are filtered."""
        if self.shards is not None:
            plan = self.plan
            if plan.numerics == "strict" or plan.isolation == "trusted" or isinstance(plan.clipping, AdaptiveClip):
                raise InputError("sharded models take float64 numerics, isolated records and a fixed clip norm")
            if looks_at_all:
                raise InputError("evidence and individual filters look at whole gradients; gather them without shards")
        if not self.ranks.alone:
            if looks_at_all:
                raise InputError("evidence and individual filters look at all records: gather them in a single process")
            if self.plan.unit.multiplicity > 1:  # one record more would move the others to other microbatches
                raise InputError("records inside microbatches cannot be dealt out to several ranks; use one process")

    def draws(self, units: int) -> Iterator[Indices]:
        """The drawn units of each step. A rank draws over its own units, and knows of no others."""
        policy, ranks, width = self.plan.sampling, self.ranks, self.width or 1
        if policy.by_unit:
            yield from (ranks.units(d, width) for d in policy.draws(ranks.owned(units, width), self.randomness))
        else:  # how many of them a rank draws depends on the others: rank 0 draws for all, and tells each its own
            draws = policy.draws(units, self.randomness)
            while True:
                yield ranks.dealt(next(draws) if ranks.first else None, width)

    def release(self, drawn: Drawn, params: Mapping[str, Tensor], computed: int) -> Vectors:
        """Every rank sums its own units, ``computed`` rows at a time, and adds the noise of its part of the sum."""
        denominator = self.plan.sampling.denominator
        if self.shards is not None:
            return self._release_shards(drawn, denominator, computed)
        self.ranks.share([value.detach() for value in params.values()])  # rank 0's
        sums = self.ranks.together(lambda: self._sums_here(drawn, params))
        return release_together(self.ranks, drawn.mechanism, sums, denominator, self.randomness, like=params)

    def _release_shards(self, drawn: Drawn, denominator: float, computed: int) -> Vectors:
        chunk, width = self.ranks.even_share(drawn.rows, computed), self.width
        with self.shards.step(drawn.mechanism, deterministic=width is not None):
            if width is None:
                self.sum_of(drawn, self.shards.whole, chunk=chunk)
            else:
                for part in drawn.blocks(width):
                    self.sum_of(part, self.shards.whole, _ANY_SAMPLE)
        released: Vectors = self.shards.release(drawn.mechanism, denominator, self.randomness)
        return released

    def _sums_here(self, drawn: Drawn, params: Mapping[str, Tensor]) -> Vectors:
        """This rank's share of the sums; in whole numbers, block by block, where all bits are to be the same."""
        width = self.width
        if width is None:
            return self.sum_of(drawn, params).sums
        total: Vectors = {}
        for part in drawn.blocks(width):
            sums = self.sum_of(part, params, sample=_ANY_SAMPLE).sums
            total = added(total, whole_sums(drawn.mechanism, sums))
        return total or whole_sums(drawn.mechanism, drawn.mechanism.zeros(next(iter(params.values())).device))
