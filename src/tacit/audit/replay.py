"""Check 1: the same randomness on D and on D with one hostile record more. Everything that leaves is compared.

Files, what is printed and the number of releases must be identical. A release may move by what the ledger was charged
for: in every group by its sensitivity, and in all groups together by 1/z in units of the noise.
"""

import contextlib
import io
import itertools
import logging
import math
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tacit.audit.finding import Finding, described, raise_if_of_the_machine, turns_errors_into_findings
from tacit.errors import TacitError
from tacit.ledger import GaussianSumQuery, read_ledger
from tacit.losses import ModelLosses
from tacit.mechanisms import AdaptiveClip, ClipGroups, ClipLayers, Clipping, ClipRecords, GaussianNoise, VectorGroup
from tacit.randomness import Randomness
from tacit.sampling import (
    RECORDS,
    BallsInBinsSampling,
    FixedSizeSampling,
    Microbatches,
    PoissonSampling,
    SamplingPolicy,
    UnitOfPrivacy,
    Users,
)
from tacit.training import DataSource, PrivateSum, TrainingPlan

STEPS, SIZE, CHUNK, CLIP = 2, 6, 4, 0.8
ROOM = 1e-9  # relative room for rounding in the comparison itself

SAMPLING: dict[str, SamplingPolicy] = {
    "poisson": PoissonSampling(probability=0.5, expected_size=3),
    "full batch": PoissonSampling(probability=1.0, expected_size=6),
    "nobody": PoissonSampling(probability=1e-15, expected_size=3),
    "balls in bins": BallsInBinsSampling(bins=2, expected_size=3),
    "fixed size": FixedSizeSampling(size=4, population=SIZE),
}
_NAMES = ("0.weight", "0.bias", "2.weight", "2.bias")
CLIPPING: dict[str, Clipping] = {
    "clip": ClipRecords(CLIP),
    "normalise": ClipRecords(CLIP, rule="normalise"),
    "layers": ClipLayers(CLIP),
    "adaptive": AdaptiveClip(CLIP),
    "joint": ClipGroups(
        (VectorGroup(("0.weight", "0.bias", "2.weight", "2.bias"), CLIP, scales=(1.0, 1.0, 2.0, 4.0)),)
    ),
}
UNITS: dict[str, tuple[UnitOfPrivacy, int]] = {  # and the rows of one that is added
    "user": (Users(), 2),
    "microbatch": (Microbatches(2), 2),
    "record of a microbatch": (Microbatches(2, protect="record"), 1),
}
HOSTILE = (math.nan, math.inf, -math.inf, 3e38, -3e38, 1e-45, 0.0, 1e4, 1.0)
LABELS = (0, 1, -1, 2, 99, -100)
SCALES = (1.0, 1e-3, 1e6)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """All that leaves a run: the bytes of its files, what it printed, and its releases."""

    files: dict[str, bytes]
    said: str
    released: list[dict[str, Tensor]]
    queries: tuple[GaussianSumQuery, ...]
    denominator: float
    drawn: list[list[int]]  # the units of each step: others must not be drawn because of one more
    stopped: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One pair of neighbours."""

    sampling: SamplingPolicy
    clipping: Clipping
    record: Sequence[float]
    label: int = 0
    scale: float = 1.0
    unit: UnitOfPrivacy = RECORDS
    rows: int = 1  # that the unit brings along
    views: int | None = None
    as_items: bool = field(default=False)  # a map-style data set in place of tensors

    def data(self) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(2)
        inputs = torch.randn(SIZE, 4, generator=generator) * self.scale
        labels = torch.randint(0, 2, (SIZE,), generator=generator)
        alone = (
            self.unit == UNITS["record of a microbatch"][0]
        )  # one microbatch is not full, so that the added record has a companion
        return (inputs[:-1], labels[:-1]) if alone else (inputs, labels)

    def neighbour(self) -> tuple[Tensor, Tensor]:
        """One unit more, or the last one replaced where the number of units is public."""
        inputs, labels = self.data()
        if self.sampling.neighbours == "replace_one":
            inputs, labels = inputs[: -self.rows], labels[: -self.rows]
        more = torch.tensor([list(self.record)] * self.rows, dtype=torch.float32)
        return torch.cat([inputs, more]), torch.cat([labels, torch.full((self.rows,), self.label)])

    @property
    def moves(self) -> float:
        """How many contributions one unit can change: two if it is replaced."""
        return 2.0 if self.sampling.neighbours == "replace_one" else 1.0


@turns_errors_into_findings("replay")
def check_replay(cases: Sequence[Case] | None = None) -> Finding:
    """Replay every case; anything that differs by more than what was charged for is reported."""
    cases = every_case() if cases is None else cases
    broke: dict[str, int] = {}
    known: dict[str, Outgoing] = {}
    most = 0.0
    for case in cases:
        found, share = compare(case, known)
        most = max(most, share)
        for sentence in found:
            broke[sentence] = broke.get(sentence, 0) + 1
    sentences = tuple(f"{sentence} ({count} of {len(cases)} cases)" for sentence, count in broke.items())
    moved = f"{len(cases)} neighbours: largest move {most:.4f} of what was charged for"
    return Finding("replay", "neighbours, each with one hostile record more", len(cases), sentences, moved)


def every_case() -> list[Case]:
    """Each policy, rule and unit, with the hostile values dealt out over them."""
    values = itertools.cycle(itertools.product(HOSTILE, LABELS[:4], SCALES))
    pairs = itertools.product(SAMPLING.values(), CLIPPING.values())
    cases = [Case(sampling, clipping, *_dealt(values)) for sampling, clipping in pairs]
    poisson, full = SAMPLING["poisson"], SAMPLING["full batch"]
    for unit, rows in UNITS.values():
        for sampling in (poisson, full):
            cases.append(Case(sampling, CLIPPING["clip"], *_dealt(values), unit=unit, rows=rows))
            cases.append(Case(sampling, CLIPPING["clip"], [50.0, -20.0, 3.0, 9.0], unit=unit, rows=rows))
    cases += [against_a_companion(full), against_a_companion(poisson)]
    cases += [Case(full, CLIPPING["clip"], [value] * 4) for value in HOSTILE]
    cases += [Case(full, CLIPPING["clip"], [100.0] * 4, label) for label in LABELS]
    cases += [
        Case(poisson, rule, [100.0, -3.0, 7.0, 1.0], 1, views=2) for rule in (CLIPPING["clip"], CLIPPING["layers"])
    ]
    cases += [Case(sampling, CLIPPING["clip"], [100.0] * 4, as_items=True) for sampling in (poisson, full)]
    return cases


def against_a_companion(sampling: SamplingPolicy) -> Case:
    """A record that turns its microbatch's mean around: twice the clip norm, the most that it can do."""
    unit = UNITS["record of a microbatch"][0]
    case = Case(sampling, CLIPPING["clip"], [0.0] * 4, scale=3.0, unit=unit)
    inputs, labels = case.data()
    return replace(case, record=(-2.5 * inputs[-1]).tolist(), label=int(labels[-1]))


def few_cases() -> list[Case]:
    """A hundredth of a second each: enough to see most of what replays see."""
    poisson, full = SAMPLING["poisson"], SAMPLING["full batch"]
    return [
        Case(poisson, CLIPPING["clip"], [1e4, 1.0, -2.0, 30.0], 1, scale=1e6),
        Case(full, CLIPPING["clip"], [3.0, -2.0, 1.0, 5.0], 0),
        Case(full, CLIPPING["layers"], [math.nan, 1.0, -2.0, 30.0], 0),
        Case(full, CLIPPING["normalise"], [3e38, 1.0, -2.0, 30.0], 1),
        Case(full, CLIPPING["clip"], [50.0, -20.0, 3.0, 9.0], unit=Users(), rows=2),
    ]


def _dealt(values: Iterator[tuple[float, int, float]]) -> tuple[list[float], int, float]:
    value, label, scale = next(values)
    return [value, 1.0, -2.0, 30.0], label, scale


def compare(case: Case, known: dict[str, Outgoing] | None = None) -> tuple[list[str], float]:
    """What differs that must not, and how far a release moved as a share of what was charged for."""
    key = repr((case.sampling, case.clipping, case.scale, case.unit, case.views, case.as_items))
    known = {} if known is None else known
    if key not in known:
        known[key] = outgoing(case, case.data())
    one, other = known[key], outgoing(case, case.neighbour())
    broke = []
    for name in sorted(one.files.keys() | other.files.keys()):
        if one.files.get(name) != other.files.get(name):
            broke.append(f"the file {name} differs")
    if one.said != other.said:
        broke.append("what is printed, logged or warned of differs")
    if one.stopped:
        broke.append(f"a run on harmless data stopped: {one.stopped}")
    if one.stopped != other.stopped:
        broke.append(f"one run stopped, the other not: {one.stopped or other.stopped}")
    if len(one.released) != len(other.released):
        broke.append("the number of releases differs")
    if any(set(before) - set(after) for before, after in zip(one.drawn, other.drawn, strict=False)) or any(
        len(set(after) - set(before)) > 1 for before, after in zip(one.drawn, other.drawn, strict=False)
    ):
        broke.append("one unit more changed which others were drawn")
    share = 0.0
    # what comes after an adaptive clip's first release follows that release, as adaptive composition allows
    last = 1 if isinstance(case.clipping, AdaptiveClip) else None
    for before, after in list(zip(one.released, other.released, strict=False))[:last]:
        if not all(bool(torch.isfinite(value).all()) for value in after.values()):
            broke.append("a release is not finite")
            continue
        share = max(share, moved_share(before, after, one, case))
    if share > 1 + ROOM:
        broke.append("a release moved by more than what was charged for")
    return broke, share


def moved_share(one: Mapping[str, Tensor], other: Mapping[str, Tensor], run: Outgoing, case: Case) -> float:
    """How far a release moved, as a share of what was charged for one unit."""
    norm = case.clipping.initial if isinstance(case.clipping, AdaptiveClip) else 1.0
    scales = _scales(case.clipping)
    unit = run.denominator / case.moves / norm
    moves = {name: (one[name] - other[name]).double() * (unit / scales.get(name, 1.0)) for name in one}
    return share_of_charge(moves, run.queries)


def share_of_charge(moves: Mapping[str, Tensor], queries: Sequence[GaussianSumQuery], room: float = 0.0) -> float:
    """The larger of the groups' moves over their sensitivities, and of the joint move over 1/z.

    ``room`` is the length that the rounding of the releases themselves may have added.
    """
    joint, allowed, largest = 0.0, 0.0, 0.0
    for query in queries:
        names = list(moves) if query.group == "all" else [name for name in query.group.split(",") if name in moves]
        if not names:
            continue
        moved = max(0.0, math.sqrt(sum(float(moves[name].square().sum()) for name in names)) - room)
        largest = max(largest, moved / query.sensitivity)
        joint += (moved / query.noise_stddev) ** 2
        allowed += (query.sensitivity / query.noise_stddev) ** 2
    return max(largest, math.sqrt(joint / allowed)) if allowed else math.inf


def _scales(clipping: Clipping) -> dict[str, float]:
    if not isinstance(clipping, ClipGroups):
        return {}
    return {n: s for group in clipping.vector_groups for n, s in zip(group.names, group.scales or (), strict=False)}


def outgoing(case: Case, data: tuple[Tensor, Tensor]) -> Outgoing:
    """Run the real engine with seeded randomness on public parameters, and keep everything that leaves it."""
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    logging.getLogger().addHandler(handler)
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(said),
            warnings.catch_warnings(record=True) as warned,
        ):
            warnings.simplefilter("always")
            released, drawn, stopped = _release(case, data, Path(folder) / "ledger.jsonl")
            files = {path.name: path.read_bytes() for path in Path(folder).iterdir() if "evidence" not in path.name}
            charges = read_ledger(folder).charges
            queries = charges[0].event.queries if charges else ()
    finally:
        logging.getLogger().removeHandler(handler)
    words = said.getvalue() + "".join(str(one.message) for one in warned)
    return Outgoing(files, words, released, queries, case.sampling.denominator, drawn, stopped)


def _release(
    case: Case, data: tuple[Tensor, Tensor], path: Path
) -> tuple[list[dict[str, Tensor]], list[list[int]], str]:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    losses = ModelLosses(model, classify)
    noise = GaussianNoise(multiplier=1.0)
    plan = TrainingPlan(
        case.sampling, case.clipping, noise, STEPS, path, unit=case.unit, physical_batch=CHUNK, block=STEPS
    )
    engine = PrivateSum(losses, losses.params, plan, randomness=Randomness.seeded(11))
    released, drawn = [], []
    try:
        for sample in engine.samples(_source(case, data), STEPS):
            drawn.append(sample.units.tolist())
            released.append(engine.release(sample, losses.params))
    except Exception as error:
        raise_if_of_the_machine(error)
        said = f"{type(error).__name__}: {error}" if isinstance(error, TacitError) else described(error)
        return released, drawn, said
    finally:
        engine.close()
    return released, drawn, ""


def _source(case: Case, data: tuple[Tensor, Tensor]) -> DataSource:
    owners = [row // case.rows for row in range(len(data[0]))] if case.unit.unit == "user" else None
    rows: Any = [(x, int(y)) for x, y in zip(*data, strict=True)] if case.as_items else data
    augment = None if case.views is None else _shifted
    ids = range(len(data[0])) if isinstance(case.unit, Microbatches) else None
    return DataSource(rows, user_ids=owners, record_ids=ids, augment=augment, views=case.views)


def _shifted(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return batch[0] + 0.5, batch[1]


def classify(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1], reduction="none")
