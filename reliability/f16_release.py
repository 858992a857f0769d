"""F16: every way to get a release wrongly that we could think of, and random damage to every file of a run.

What cannot be tried here: somebody who rewrites ledger, head, manifest and checkpoint consistently. That is seen only
by comparing with a head that was kept elsewhere, as the documentation says.
"""

import contextlib
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from safetensors.numpy import save_file

from reliability.figures import Figure, tries
from tacit.errors import TacitError
from tacit.evidence import Evidence, Stretch, evidence_path, save_evidence
from tacit.ledger import (
    Charge,
    GaussianSumQuery,
    Head,
    LedgerFile,
    LedgerHeader,
    PoissonSample,
    PosteriorSample,
    SamplingEvent,
    ShuffledStep,
    verify_ledger,
)
from tacit.ledger.chain import GENESIS, seal
from tacit.release import check_bundle, release_run, write_manifest
from tacit.release.bundle import sums_of
from tacit.release.statement import in_words

EVENT = PoissonSample(0.01, (GaussianSumQuery(1.0, 1.1),))
BUDGET = {"epsilon": 1.0, "delta": 1e-5}
Spoil = Callable[[Path], "dict[str, Any] | None"]


def make(folder: Path, event: SamplingEvent = EVENT, steps: int = 100, facts: Any = None, **header: Any) -> Path:
    """A run as `tacit train` leaves it: ledger, posterior, facts, manifest, checkpoint, evidence."""
    shutil.rmtree(folder, ignore_errors=True)
    asked = {"dataset": "mine", "dataset_size": 1000, **BUDGET, "neighbours": event.neighbours, **header}
    with LedgerFile(folder / "ledger.jsonl", LedgerHeader(**asked)) as ledger:
        ledger.plan(steps or 1)
        for _ in range(min(steps, 4)):
            ledger.reserve([Charge(event, max(1, steps // 4))])
    save_file({"w": np.array([0.5, -1.0])}, folder / "posterior.safetensors", {"tacit_posterior": "point"})
    told = {"format": 1, "method": "sgld", "unit": asked.get("unit", "record"), **BUDGET, **(facts or {})}
    (folder / "run.json").write_text(json.dumps(told))
    write_manifest(folder, ["posterior.safetensors", "run.json"])
    head = verify_ledger(folder).head
    checkpoint(folder / "checkpoint.safetensors", head)
    save_evidence(evidence(head), evidence_path(folder, "members"))
    return folder


def evidence(head: Head) -> Evidence:
    return Evidence(head, "members", np.full((1, 9), 0.5, dtype=np.float32), (Stretch(0.01, 1.1, 100, 0, 0),))


def checkpoint(path: Path, head: Head) -> None:
    facts = {"head": {"count": head.count, "hash": head.hash}}
    save_file({"0": np.zeros(1)}, path, {"tacit_checkpoint": json.dumps(facts)})


def rewrite(folder: Path, change: Callable[[list[dict[str, Any]]], Any], with_head: bool = True) -> None:
    """A forger who knows the format: changed records, sealed again, with a fitting head file."""
    records = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    change(records)
    head, lines = Head(0, GENESIS), b""
    for record in records:
        line, head = seal({key: item for key, item in record.items() if key not in ("hash", "previous")}, head)
        lines += line
    (folder / "ledger.jsonl").write_bytes(lines)
    if with_head:
        (folder / "ledger.jsonl.head").write_bytes(head.to_bytes())


def _less_noise(records: list[dict[str, Any]]) -> None:
    for record in records:
        for charge in (one for one in record.get("charges", ()) if one != "again"):
            charge["event"]["queries"][0]["noise_stddev"] = 50.0


def _replace_text(name: str, old: str, new: str) -> Spoil:
    def spoil(run: Path) -> None:
        text = (run / name).read_text()
        assert old in text, f"{name} has no {old}"
        (run / name).write_text(text.replace(old, new, 1))

    return spoil


def _facts(**facts: Any) -> Spoil:
    def spoil(run: Path) -> None:
        make(run, facts=facts)

    return spoil


def _made(**how: Any) -> Spoil:
    def spoil(run: Path) -> None:
        make(run, **how)

    return spoil


def _asked(**options: Any) -> Spoil:
    return lambda run: options


def _disguised(kind: str) -> Spoil:
    def spoil(run: Path) -> None:
        shutil.copy(run / kind, run / "posterior.safetensors")
        _list_again(run)

    return spoil


def _do(*steps: Callable[[Path], Any]) -> Spoil:
    """One after the other; the last says what is asked of the release."""
    return lambda run: [step(run) for step in steps][-1]


def _list_again(run: Path) -> None:
    write_manifest(run, ["posterior.safetensors", "run.json"])


def _cut_ledger(lines: int) -> Callable[[Path], None]:
    def cut(run: Path) -> None:
        kept = (run / "ledger.jsonl").read_bytes().splitlines(keepends=True)[:lines]
        (run / "ledger.jsonl").write_bytes(b"".join(kept))

    return cut


def _head_of_prefix(run: Path) -> None:
    """Roll ledger and head back together: the manifest and the checkpoint still know better."""
    rewrite(run, lambda records: records.__delitem__(slice(3, None)))


def _remove(*names: str) -> Callable[[Path], None]:
    return lambda run: [(run / name).unlink() for name in names] and None


def _write(name: str, data: bytes | str) -> Callable[[Path], Any]:
    return lambda run: (run / name).write_bytes(data.encode() if isinstance(data, str) else data)


def _link(run: Path) -> None:
    shutil.move(run / "posterior.safetensors", run / "elsewhere")
    (run / "posterior.safetensors").symlink_to(run / "elsewhere")


def _other_evidence(run: Path) -> None:
    save_evidence(evidence(Head(2, "f" * 64)), evidence_path(run, "probes"))


def _copy_posterior(run: Path) -> None:
    shutil.copy(run / "posterior.safetensors", run / "model.safetensors")


_NEWER = Head(99, "f" * 64)
_SHARE = PosteriorSample(0.01, 1.0, exact=False)
WAYS: dict[str, Spoil] = {
    "steps lowered in the ledger": _replace_text("ledger.jsonl", '"steps":25', '"steps":2'),
    "noise raised in the ledger": _replace_text("ledger.jsonl", '"noise_stddev":1.1', '"noise_stddev":9.1'),
    "budget raised in the ledger": _replace_text("ledger.jsonl", '"epsilon":1.0', '"epsilon":9.0'),
    "ledger forged, head not": lambda run: rewrite(run, _less_noise, with_head=False),
    "ledger and head forged": lambda run: rewrite(run, _less_noise),
    "ledger and head forged, no checkpoint": _do(
        lambda run: rewrite(run, _less_noise), _remove("checkpoint.safetensors", "evidence.members.safetensors")
    ),
    "a charge dropped and sealed again": lambda run: rewrite(run, lambda records: records.pop(3)),
    "a charge settled away afterwards": lambda run: rewrite(
        run, lambda records: records.insert(4, {"record": "settle", "reserve": 4, "steps": 0})
    ),
    "charges swapped": lambda run: rewrite(run, lambda records: records.reverse()),
    "an unknown record": lambda run: rewrite(run, lambda records: records.append({"record": "gift"})),
    "ledger cut at a line": _cut_ledger(3),
    "ledger cut inside a line": lambda run: _write("ledger.jsonl", (run / "ledger.jsonl").read_bytes()[:-9])(run),
    "ledger and head rolled back": _head_of_prefix,
    "rolled back, no checkpoint": _do(
        _head_of_prefix, _remove("checkpoint.safetensors", "evidence.members.safetensors")
    ),
    "rolled back, no manifest": _do(_head_of_prefix, _remove("artefacts.json")),
    "ledger emptied": _write("ledger.jsonl", b""),
    "ledger removed": _remove("ledger.jsonl"),
    "head removed": _remove("ledger.jsonl.head"),
    "head emptied": _write("ledger.jsonl.head", b""),
    "head at zero": _write("ledger.jsonl.head", json.dumps({"count": 0, "hash": "f" * 64})),
    "head of another ledger": _write("ledger.jsonl.head", Head(2, "e" * 64).to_bytes()),
    "ledger of another run": lambda run: _write(
        "ledger.jsonl", (make(run.with_name("other"), steps=40) / "ledger.jsonl").read_bytes()
    )(run),
    "checkpoint newer than the ledger": lambda run: checkpoint(run / "checkpoint.safetensors", _NEWER),
    "a second checkpoint, newer": lambda run: checkpoint(run / "checkpoint-2.safetensors", _NEWER),
    "checkpoint damaged": _write("checkpoint.safetensors", b"\0" * 40),
    "evidence of another ledger": _other_evidence,
    "manifest removed": _remove("artefacts.json"),
    "manifest damaged": _write("artefacts.json", "{"),
    "manifest of a newer ledger": lambda run: _replace_text("artefacts.json", '"count":6', '"count":7')(run),
    "manifest of another format": _replace_text("artefacts.json", '"format":1', '"format":2'),
    "manifest that reaches out": _replace_text("artefacts.json", "run.json", "../run.json"),
    "nothing listed": lambda run: write_manifest(run, []),
    "only facts listed": _do(_remove("posterior.safetensors"), lambda run: write_manifest(run, ["run.json"])),
    "posterior changed": _write("posterior.safetensors", b"something else"),
    "posterior removed": _remove("posterior.safetensors"),
    "posterior a link": _link,
    "run.json changed": _replace_text("run.json", "sgld", "sgd"),
    "a model that is not listed": _copy_posterior,
    "facts that are not listed": lambda run: write_manifest(run, ["posterior.safetensors"]),
    "a shared ledger that is another's": lambda run: {"ledger": make(run.with_name("other"), steps=40)},
    "evidence under another name": _disguised("evidence.members.safetensors"),
    "checkpoint under another name": _disguised("checkpoint.safetensors"),
    "text under a model's name": _do(_write("posterior.safetensors", b"rows of the table"), _list_again),
    "over the declared budget": _made(steps=2000),
    "over the asked budget": _asked(epsilon=0.1),
    "a larger budget asked than declared": lambda run: make(run, steps=2000) and {"epsilon": 99.0},
    "over at the asked delta": _asked(epsilon=0.6, delta=1e-9),
    "no budget at all": _made(epsilon=None, delta=None),
    "epsilon of NaN": _asked(epsilon=float("nan")),
    "epsilon of infinity": _asked(epsilon=float("inf")),
    "delta of 1": _asked(delta=1.0),
    "delta not below 1/n": _asked(delta=0.01),
    "seeded": _made(randomness="seeded"),
    "nothing charged": _made(steps=0),
    "an inexact posterior sample": _made(event=_SHARE, steps=4),
    "no bound: shuffled batches": _made(event=ShuffledStep(10, (GaussianSumQuery(1.0, 9.0),))),
    "adaptive without a budget": _made(schedule="adaptive", epsilon=None, delta=None),
    "Bayesian epsilon in run.json": _facts(bayesian_epsilon=0.1),
    "Bayesian epsilon, deeper": _facts(results=[{"bayesian": {"probes": [0.1]}}]),
    "Bayesian row in run.json": _facts(guarantees=[{"notion": "bayesian_dp"}]),
    "individual epsilons in run.json": _facts(individual_epsilons=[0.1, 0.2]),
    "a smaller epsilon in run.json": _facts(epsilon=0.1),
    "no unit in run.json": _facts(unit=None),
    "no delta in run.json": _facts(delta=None),
    "another delta in run.json": _facts(delta=2e-5),
    "a larger epsilon in run.json": _facts(epsilon=3.0),
    "a smaller epsilon in a row": _facts(guarantees=[{"epsilon": 0.1, "delta": 1e-5, "is_bound": True}]),
    "schema from private data": _facts(schema={"derived_from_private_data": True}),
    "schema from private data, by column": _facts(schema={"columns": [{"derived_from_private_data": ["age"]}]}),
    "schema from private data, in the ledger": _made(assumptions=("derived_from_private_data: bounds",)),
    "Bayesian numbers without evidence": _do(_remove("evidence.members.safetensors"), _asked(include_bayesian=True)),
}


def wrongly_released(run: Path, out: Path, options: dict[str, Any]) -> bool:
    """Whether a release came about, or left anything behind; only an error on purpose counts as a refusal."""
    around = {path.name for path in out.parent.iterdir()}
    try:
        release_run(run, out, **options)
    except TacitError:
        return {path.name for path in out.parent.iterdir()} != around
    return True


def prove(effort: float) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield _every_way(folder, tries(len(WAYS), effort, 12))
        yield _flipped_runs(folder, tries(5000, effort, 20))
        yield _honest(folder, tries(200, effort, 3))
        yield _flipped_bundles(folder, tries(5000, effort, 20))
        yield _lying_bundles(folder)
        yield _failing_disks(folder)


def _every_way(folder: Path, count: int) -> Figure:
    lost = []
    for name in random.Random(0).sample(sorted(WAYS), count):
        run = make(folder / "run")
        options = WAYS[name](run)
        if wrongly_released(run, folder / "bundle", options if isinstance(options, dict) else {}):
            lost.append(name)
            shutil.rmtree(folder / "bundle", ignore_errors=True)
    return Figure("F16", "distinct ways to a wrong release", count, len(lost), "; ".join(lost), "0 released")


def _flipped_runs(folder: Path, count: int) -> Figure:
    """One bit of one file; side files that do not leave may be hurt without harm only where their head survives."""
    chance, template = random.Random(1), make(folder / "template")
    names = ["ledger.jsonl", "ledger.jsonl.head", "posterior.safetensors", "run.json", "artefacts.json"]
    lost = 0
    for number in range(count):
        run = folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(template, run)
        _flip(run / names[number % len(names)], chance)
        lost += wrongly_released(run, folder / "bundle", {})
        shutil.rmtree(folder / "bundle", ignore_errors=True)
    return Figure("F16", "runs released after one flipped bit", count, lost, goal="0 released")


def _flip(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(bytes(data))


def _honest(folder: Path, count: int) -> Figure:
    """A gate that refuses everything would pass the rest; and no Bayesian word may slip into what it lets through."""
    lost = 0
    for number in range(count):
        run, out = make(folder / "run", steps=4 * (1 + number % 40)), folder / f"honest-{number}.tar.gz"
        release_run(run, out)
        found = check_bundle(out)
        texts = json.dumps(found.statement.to_json()) + in_words(found.statement.to_json())
        lost += any(word in texts.lower() for word in ("bayesian", "private_diagnostics", 'percentile": 0'))
        lost += any("evidence" in name or "checkpoint" in name for name in found.files)
        out.unlink()
    return Figure("F16", "honest runs released, their bundle verified, no Bayesian number inside", count, lost)


def _flipped_bundles(folder: Path, count: int) -> Figure:
    chance = random.Random(2)
    release_run(make(folder / "run"), folder / "received")
    paths = sorted((folder / "received").iterdir())
    lost = 0
    for number in range(count):
        path = paths[number % len(paths)]
        good = path.read_bytes()
        _flip(path, chance)
        lost += _accepted(folder / "received")
        path.write_bytes(good)
    shutil.rmtree(folder / "received")
    return Figure("F16", "received bundles accepted after one flipped bit", count, lost, goal="0 accepted")


def _accepted(bundle: Path) -> bool:
    try:
        check_bundle(bundle)
    except TacitError:
        return False
    return True


_LIES: dict[str, Any] = {
    "epsilon": 0.01, "delta": 1e-9, "notion": "bayesian_dp", "neighbours": "replace_one", "unit": "user",
    "accountant": "gdp", "is_bound": False, "best_guess": 0.5, "assumptions": ["none"], "accountants": [],
    "budget": {"epsilon": 2.0, "delta": 1e-9}, "ledger": {}, "verify": [], "if_the_stop_followed_outputs": 0.0,
    "private_diagnostics": {"members": []}, "bayesian_epsilon": 0.1, "format": 2,
}  # fmt: skip


def _lying_bundles(folder: Path) -> Figure:
    """Another statement, with fitting words and fitting checksums."""
    release_run(make(folder / "run"), folder / "received")
    said = json.loads((folder / "received" / "statement.json").read_text())
    lost = 0
    for name, value in _LIES.items():
        (folder / "received" / "statement.json").write_text(json.dumps({**said, name: value}))
        files = {path.name: path.read_bytes() for path in (folder / "received").iterdir() if path.name != "SHA256SUMS"}
        (folder / "received" / "SHA256SUMS").write_bytes(sums_of(files))
        lost += _accepted(folder / "received")
    return Figure("F16", "lies in a statement whose checksums fit", len(_LIES), lost, goal="0 accepted")


def _failing_disks(folder: Path) -> Figure:
    """The disk fails at every step of writing: nothing stands under the asked name, and a second try succeeds."""
    lost = times = 0
    for target in ("_write", "_write_file", "_with_sums", "LedgerFile.release", "os.rename", "os.fsync"):
        run, out = make(folder / "run"), folder / "bundle"
        around = {path.name for path in folder.iterdir()}
        failing = mock.patch(f"tacit.release.bundle.{target}", side_effect=OSError("no space left"))
        with failing, contextlib.suppress(OSError, TacitError):
            release_run(run, out)
        lost += {path.name for path in folder.iterdir()} != around
        release_run(run, out)
        lost += not _accepted(out)
        shutil.rmtree(out)
        times += 1
    return Figure("F16", "disk failures while a bundle is written", times, lost, goal="nothing left of it")
