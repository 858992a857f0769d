"""Thousands of files changed with every checksum made anew, read in this process: a value, or one line (F22, F16).

``reliability/f22_resealed.py`` makes the same changes and asks every command; here the readers behind them are asked.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reliability.f22_resealed import KINDS, Kind, Truth, prepare
from reliability.small_table import EPSILON, short_runs
from tacit.errors import TacitError
from tacit.evidence import check_bound, load_evidence
from tacit.ledger import read_ledger, verify_ledger
from tacit.ledger.manifest import check_if_finished, read_manifest
from tacit.posteriors import load_posterior
from tacit.release import check_bundle
from tacit.release.artefacts import facts_of
from tacit.release.facts import check_facts
from tacit.runs import RunFolder, read_content
from tacit.tables import read_schema
from tacit.training import read_checkpoint

Reader = Callable[[Path, Truth], object]


def _read_run(folder: Path, truth: Truth) -> None:
    for read in (lambda run: RunFolder(run).read_facts(), read_content):
        _one_line(read, folder)
    facts = facts_of((folder / "run.json").read_bytes())
    check_facts(read_ledger(folder), facts, {path.name: path.read_bytes() for path in folder.glob("posterior.*")})
    told = {name: facts.get(name) for name in ("delta", "unit")}
    assert told == {"delta": 1e-5, "unit": "record"}
    assert isinstance(facts["epsilon"], float | int)


def _read_evidence(folder: Path, truth: Truth) -> None:
    for path in folder.glob("evidence.*"):
        check_bound(load_evidence(path), folder)


def _read_bundle(folder: Path, truth: Truth) -> None:
    found = check_bundle(folder).statement.to_json()
    apart = ("ledger", "verify")
    assert {**found, **dict.fromkeys(apart)} == {**truth.statement, **dict.fromkeys(apart)}
    assert facts_of((folder / "run.json").read_bytes())["epsilon"] == EPSILON


READERS: dict[str, tuple[int, Reader]] = {
    "ledgers and heads of runs": (600, lambda folder, truth: read_ledger(folder).merged()),
    "heads of ledgers": (300, lambda folder, truth: verify_ledger(folder)),
    "run.json and its manifest": (400, _read_run),
    "manifests": (300, lambda folder, truth: (read_manifest(folder), check_if_finished(folder))),
    "posteriors and their manifest": (500, lambda folder, truth: load_posterior(next(folder.glob("posterior.*")))),
    "evidence": (500, _read_evidence),
    "checkpoints of stopped runs": (500, lambda folder, truth: read_checkpoint(folder / "checkpoint.safetensors")),
    "received bundles": (150, _read_bundle),
    "schemas": (300, lambda folder, truth: [read_schema(path) for path in folder.glob("*.toml")]),
}


def _one_line(read: Callable[..., object], *given: object) -> bool:
    """Whether it is refused, in one line."""
    said = ""
    try:
        read(*given)
    except TacitError as error:
        said = str(error)
    assert "\n" not in said
    return bool(said)


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Truth]:
    with short_runs():
        yield prepare(tmp_path_factory.mktemp("resealed") / "template")


@contextmanager
def put_back(folder: Path) -> Iterator[None]:
    """Afterwards the files of a folder are what they were."""
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    yield
    for path, data in before.items():
        if not path.exists() or path.read_bytes() != data:
            path.write_bytes(data)


def _try(kind: Kind, truth: Truth, times: int, seed: int) -> None:
    folder, chance = truth.table.folder / kind.folder, random.Random(f"{kind.name} {seed}")
    _, read = READERS[kind.name]
    refused = 0
    for number in range(times):
        with put_back(folder):
            what = kind.change(folder, chance)
            try:
                refused += _one_line(read, folder, truth)
            except Exception as error:
                raise AssertionError(f"change {number}, {what}: {type(error).__name__}: {error}") from error
    assert refused > times / 10, f"only {refused} of {times} changes were refused"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_is_changed_and_sealed_again_is_read_or_refused_in_one_line(kind: Kind, truth: Truth) -> None:
    _try(kind, truth, READERS[kind.name][0], seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_as_many_more(kind: Kind, truth: Truth, seed: int) -> None:
    _try(kind, truth, READERS[kind.name][0], seed)
