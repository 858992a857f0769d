"""Plans: every public fact of a private run, fixed before any data is read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from tacit.accountants import Budget, check_delta
from tacit.distributed import in_a_job
from tacit.errors import InputError, check_choice, check_count, check_texts
from tacit.gradients.clipped_sum import Isolation
from tacit.ledger import LedgerHeader
from tacit.mechanisms import SLACK, Clipping, GaussianNoise, GaussianSumMechanism, Numerics, build_mechanism
from tacit.randomness import Randomness
from tacit.sampling import RECORDS, SamplingPolicy, UnitOfPrivacy
from tacit.training.before_the_run import rounds_by_place

AT_ONCE, _MOST_AT_ONCE = 20, 100  # steps reserved: what a crash can over-charge, and the ledger's cost per step

_TRUSTED = 'the losses were trusted to keep records apart (isolation="trusted"); this was not enforced'
_JOB = (
    "the processes of the job that trained it trust each other: each may learn what the drawn records of the others "
    "add to its own part of a sum before noise; none is told which records the others drew"
)
_ROUNDED = (
    "matrix products round a record by its place among the others (products were formed before tacit was imported, or "
    "this is not MKL); records were taken not to stand at a tie that this decides"
)


@dataclass(frozen=True, slots=True)
class PrivacyPlan:
    """What protects the data, whatever is trained on it and for how long.

    Args:
        sampling: which units take part in a step, and the public denominator of its sums.
        clipping: what one unit may do.
        noise: how much noise hides it; None if the inference method or the vector groups say so.
        ledger: where the ledger lies; several runs on the same data share one, or each has its own and they are entered
            in one registry (:class:`RegisteredLedger`).
        budget: a hard stop: a block of steps that would exceed it is refused before its data is read.
        unit: whose presence is protected.
        dataset: a public name for the ledger.
        dataset_size: the declared number of units; must agree with the sampling within 1 %.
        physical_batch: at most how many records are processed at once; changes speed and memory only. By default as
            many as fit into ``memory``, by what the model takes for one.
        memory: MiB for the records of a step and what is computed of them; changes speed and memory only. A larger
            sample is read and summed in parts. By default 2048, or a quarter of what is free if that is less.
        block: how many steps are charged ahead: by default 20, of more than 2,000 a hundredth, 100 at most.
        deterministic: the clipped sum of the same records has the same bits for any number of ranks: it is taken of
            blocks of units that do not depend on the ranks, in whole numbers; see docs/ranks.md. Costs speed only.
        numerics: "strict" sums whole numbers on a grid and adds discrete Gaussian noise; see docs/how-to/strict.md.
        schedule: "adaptive" if noise, rate, stop or later runs may follow outputs; a Renyi filter guards the budget.
        assumptions: sentences that every statement about this run has to repeat.
        isolation: "records": every record's loss is computed as if it were alone, whatever the losses do. "trusted":
            the losses are trusted to keep records apart; the ledger says so, and every guarantee repeats it.
        ledger_size: the number of units that the ledger's header declares, where it is not ``dataset_size``: more of
            them where a part is held out, 0 for none, where it is an answer that the same ledger was charged for.
    """

    sampling: SamplingPolicy
    clipping: Clipping
    noise: GaussianNoise | None
    ledger: str | PathLike[str]
    budget: Budget | None = None
    unit: UnitOfPrivacy = RECORDS
    dataset: str = "unnamed"
    dataset_size: int | None = None
    physical_batch: int | None = None
    memory: int | None = field(default=None, repr=False)  # no part of what a checkpoint must find again
    block: int | None = None
    schedule: Literal["fixed", "adaptive"] = "fixed"
    assumptions: tuple[str, ...] = ()
    numerics: Numerics = "float64"
    isolation: Isolation = "records"
    ledger_size: int | None = field(default=None, repr=False)  # no part of a checkpoint's fingerprint
    deterministic: bool = field(default=False, repr=False)  # nor this

    def __post_init__(self) -> None:
        for name in ("block", "physical_batch", "memory"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        self._check_kinds()
        check_choice("numerics", self.numerics, get_args(Numerics))
        check_choice("isolation", self.isolation, get_args(Isolation))
        check_choice("schedule", self.schedule, ("fixed", "adaptive"))
        check_texts("assumptions", self.assumptions)
        if self.dataset_size is not None:
            check_count("dataset_size", self.dataset_size)
        implied = self.sampling.implied_size
        if self.dataset_size is not None and abs(self.dataset_size - implied) > 0.01 * implied:
            raise InputError(
                f"dataset_size {self.dataset_size} does not agree with the sampling, which implies {implied:g} units; "
                "expected_size must be dataset_size times probability"
            )

        if self.budget is not None:
            check_delta(self.budget.delta, self._declared_size)

    def _check_kinds(self) -> None:
        """What was given for a policy, a clip or a unit must be one; a number in its place would be understood late."""
        for name, needs in (("sampling", "implied_size"), ("clipping", "groups"), ("unit", "multiplicity")):
            if not hasattr(getattr(self, name), needs):
                raise InputError(f"{name} must be one of Tacit's values for it, found {getattr(self, name)!r}")
        for name, kind in (("noise", GaussianNoise), ("budget", Budget)):
            if getattr(self, name) is not None and not isinstance(getattr(self, name), kind):
                raise InputError(f"{name} must be a {kind.__name__} or None, found {getattr(self, name)!r}")
        if not isinstance(self.ledger, str | PathLike):
            raise InputError(f"ledger must be the path of a file, found {self.ledger!r}")
        if not isinstance(self.dataset, str):
            raise InputError(f"dataset must be a declared name, found {self.dataset!r}")

    @property
    def _declared_size(self) -> int | None:
        if self.ledger_size is not None:
            return self.ledger_size or None
        return self.dataset_size or max(1, round(self.sampling.implied_size))

    def header(self, randomness: Randomness) -> LedgerHeader:
        """What the ledger is opened with. The size is the declared one, never a count of the data."""
        return LedgerHeader(
            unit=self.unit.unit,
            neighbours=self.sampling.neighbours,
            dataset=self.dataset,
            dataset_size=self._declared_size,
            epsilon=None if self.budget is None else self.budget.epsilon,
            delta=None if self.budget is None else self.budget.delta,
            schedule=self.schedule,
            randomness=randomness.kind,
            assumptions=self.assumptions
            + ((_TRUSTED,) if self.isolation == "trusted" else ())
            + ((_ROUNDED,) if rounds_by_place() else ())
            + ((_JOB,) if in_a_job() else ()),
        )

    def mechanism(self, params: Mapping[str, Tensor], *, own_noise: bool = False) -> GaussianSumMechanism:
        """What clips and adds noise to the gradients of these parameters; with ``own_noise`` the method gives it."""
        if not params:
            raise InputError("there is nothing to train: no parameter requires a gradient")
        if own_noise and self.noise is not None:
            raise InputError("noise is given twice: by the plan and by the method's temperature; give one of them")
        return build_mechanism(
            self.clipping,
            GaussianNoise(multiplier=1.0) if own_noise else self.noise,  # replaced at every step by the method's own
            {name: value.shape for name, value in params.items()},
            slack=SLACK,
            multiplicity=self.unit.multiplicity,
            numerics=self.numerics,
        )

    def steps_at_once(self, steps: int) -> int:
        """How many of so many steps are charged ahead: their number is public, and a long run can lose a few more.

        Example:
            >>> from tacit.mechanisms import ClipRecords
            >>> from tacit.sampling import PoissonSampling
            >>> plan = PrivacyPlan(PoissonSampling(0.1, 60), ClipRecords(1.0), None, ledger="ledger.jsonl")
            >>> plan.steps_at_once(300), plan.steps_at_once(5_000), plan.steps_at_once(1_000_000)
            (20, 50, 100)
        """
        return self.block or min(_MOST_AT_ONCE, max(AT_ONCE, steps // 100))

    def versions(self) -> dict[str, str]:
        return {"torch": str(torch.__version__).partition("+")[0]}


@dataclass(frozen=True, slots=True, init=False)
class TrainingPlan(PrivacyPlan):
    """What a run will do: the plan of its privacy, and how many steps.

    Args:
        sampling, clipping, noise, ledger, budget: see :class:`PrivacyPlan`.
        steps: how many steps, fixed beforehand.
        others: the other fields of :class:`PrivacyPlan`.
    """

    steps: int = 1

    def __init__(
        self,
        sampling: SamplingPolicy,
        clipping: Clipping,
        noise: GaussianNoise | None,
        steps: int,
        ledger: str | PathLike[str],
        budget: Budget | None = None,
        **others: Any,
    ) -> None:
        check_count("steps", steps)
        object.__setattr__(self, "steps", steps)
        PrivacyPlan.__init__(self, sampling, clipping, noise, ledger, budget, **others)

    def charged_steps(self, chains: int = 1) -> int:
        """The steps to calibrate the noise for: every chain is charged, and passes are charged whole.

        Example:
            >>> from tacit.mechanisms import ClipRecords
            >>> from tacit.sampling import PoissonSampling
            >>> plan = TrainingPlan(PoissonSampling(0.1, 60), ClipRecords(1.0), None, steps=500, ledger="ledger.jsonl")
            >>> plan.charged_steps(chains=4)
            2000
        """
        check_count("chains", chains)
        return whole_passes(self.steps * chains, self.sampling.steps_per_pass)


def whole_passes(steps: int, each: int) -> int:
    """The steps of all passes that so many steps touch."""
    return -(-steps // each) * each
