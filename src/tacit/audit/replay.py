"""Check 1: the same randomness on D and on D with one hostile record more. Everything that leaves is compared.

Files, what is printed and the number of releases must be identical. A release may move by what the ledger was charged
for: in every group by its sensitivity, and in all groups together by 1/z in units of the noise.
"""

import contextlib
import io
import logging
import math
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tacit.audit.finding import Finding, described, raise_machine_errors, turns_errors_into_findings
from tacit.audit.neighbours import Case, every_case
from tacit.errors import TacitError
from tacit.ledger import GaussianSumQuery, read_ledger
from tacit.losses import ModelLosses
from tacit.mechanisms import AdaptiveClip, ClipGroups, Clipping, GaussianNoise
from tacit.randomness import Randomness
from tacit.sampling import Microbatches
from tacit.training import DataSource, PrivateSum, TrainingPlan

STEPS, CHUNK = 2, 4
ROOM = 1e-9  # relative room for rounding in the comparison itself


@dataclass(frozen=True, slots=True)
class RunOutput:
    """All that leaves a run: the bytes of its files, what it printed, and its releases."""

    files: dict[str, bytes]
    said: str
    released: list[dict[str, Tensor]]
    queries: tuple[GaussianSumQuery, ...]
    denominator: float
    drawn: list[list[int]]  # the units of each step: others must not be drawn because of one more
    stopped: str = ""


@turns_errors_into_findings("replay")
def check_replay(cases: Sequence[Case] | None = None) -> Finding:
    """Replay every case; anything that differs by more than what was charged for is reported."""
    cases = every_case() if cases is None else cases
    broke: dict[str, int] = {}
    known: dict[str, RunOutput] = {}
    most = 0.0
    for case in cases:
        found, share = compare(case, known)
        most = max(most, share)
        for sentence in found:
            broke[sentence] = broke.get(sentence, 0) + 1
    sentences = tuple(f"{sentence} ({count} of {len(cases)} cases)" for sentence, count in broke.items())
    moved = f"{len(cases)} neighbours: largest move {most:.4f} of what was charged for"
    return Finding("replay", "neighbours, each with one hostile record more", len(cases), sentences, moved)


def compare(case: Case, known: dict[str, RunOutput] | None = None) -> tuple[list[str], float]:
    """What differs that must not, and how far a release moved as a share of what was charged for."""
    key = repr((case.sampling, case.clipping, case.scale, case.unit, case.views, case.as_items))
    known = {} if known is None else known
    if key not in known:
        known[key] = run_output(case, case.data())
    one, other = known[key], run_output(case, case.neighbour())
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


def moved_share(one: Mapping[str, Tensor], other: Mapping[str, Tensor], run: RunOutput, case: Case) -> float:
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


def run_output(case: Case, data: tuple[Tensor, Tensor]) -> RunOutput:
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
    return RunOutput(files, words, released, queries, case.sampling.denominator, drawn, stopped)


def _release(
    case: Case, data: tuple[Tensor, Tensor], path: Path
) -> tuple[list[dict[str, Tensor]], list[list[int]], str]:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        # softsign takes the general way; networks that are known as a formula are the engine check's
        model = nn.Sequential(nn.Linear(4, 3), nn.Softsign(), nn.Linear(3, 2))
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
        raise_machine_errors(error)
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
