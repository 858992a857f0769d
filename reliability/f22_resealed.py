"""F22 and F16: files changed by somebody who knows their formats, with every checksum made anew.

A hash chain, a manifest, a digest or SHA256SUMS only finds damage. Here each is recomputed after the change. What then
comes out is an answer or one line; and where a change is accepted, no number of the privacy statement has changed.
What nobody can see from the files alone, all of them rewritten together, is not tried
(docs/explanation/failure-modes.md, "The ledger").
"""

import json
import random
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reliability.f16_release import rewrite
from reliability.f30_writes import Killed, MortalDisk, Trial
from reliability.figures import Figure, tries
from reliability.mutations import changed_json, changed_text, read_header, with_header
from reliability.small_table import EPSILON, Said, SmallTable, fault_of_run, short_runs, tacit
from tacit.ledger.chain import canonical
from tacit.ledger.manifest import file_hash
from tacit.release.bundle import sums_of
from tacit.release.statement import in_words
from tacit.storage import digests

_MOST = 60  # seconds of computing after which a command counts as one that does not end


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file: what it lies in, how it is changed and sealed again, and what is asked of it then.

    ``ask`` gives back what is wrong with the answers; nothing if all is well.
    """

    name: str
    folder: str
    weight: int
    change: Callable[[Path, random.Random], object]
    ask: Callable[[Path, "Truth"], str]


@dataclass(frozen=True, slots=True)
class Truth:
    """What the unchanged files say."""

    table: SmallTable
    statement: dict[str, Any]
    guarantees: list[Any]


def prove(effort: float) -> Iterable[Figure]:
    chance = random.Random(2216)
    with tempfile.TemporaryDirectory() as name, short_runs():
        place = Path(name)
        truth = prepare(place / "template")
        for kind in KINDS:
            times, wrong = tries(kind.weight, effort, least=5), []
            for _ in range(times):
                found = _tried(kind, place, truth, chance)
                wrong += [found] if found else []
            yield Figure("F22", f"{kind.name} changed and sealed again", times, len(wrong), "; ".join(wrong[:2]),
                         "an answer or one line; no privacy number changed unnoticed")  # fmt: skip


def prepare(folder: Path) -> Truth:
    """A finished regression with evidence, one that was stopped, and a bundle."""
    table = SmallTable.write(folder)
    stopped = Trial(table, "number", False, "stopped")
    with suppress(Killed):
        stopped.start(MortalDisk(80))
    for words in (
        table.train("number", folder / "run", "--bayesian-evidence"),
        ("release", folder / "run", "--out", folder / "bundle"),
    ):
        if (said := tacit(*words)).code:
            raise RuntimeError(said.err)
    (folder / "schemas").mkdir()
    for path in (table.private, table.test, *folder.glob("*.toml")):
        shutil.copy(path, folder / "schemas")
    statement = json.loads((folder / "bundle" / "statement.json").read_text())
    return Truth(table, statement, _guarantees(tacit("account", folder / "run", "--json")))


def _tried(kind: Kind, place: Path, truth: Truth, chance: random.Random) -> str:
    here = place / "here"
    shutil.rmtree(here, ignore_errors=True)
    shutil.copytree(place / "template" / kind.folder, here / kind.folder)
    made = kind.change(here / kind.folder, chance)
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, _MOST)
    try:
        found = kind.ask(here / kind.folder, truth)
    except TimeoutError:
        found = f"it computed for {_MOST} s"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return found and f"{made}: {found}"


def _too_long(*_: object) -> None:
    raise TimeoutError


# how files are changed


def _json_file(*names: str) -> Callable[[Path, random.Random], object]:
    def change(folder: Path, chance: random.Random) -> object:
        path = folder / chance.choice(names)
        value, what = changed_json(json.loads(path.read_text()), chance)
        written = _is_finite(value) and path.suffix == ".head"  # which is read in one form only
        path.write_bytes(canonical(value) + b"\n" if written else json.dumps(value).encode())
        return path.name, what

    return change


def _ledger(folder: Path, chance: random.Random) -> object:
    what: list[object] = []

    def change(records: list[dict[str, Any]]) -> None:
        number = chance.randrange(len(records))
        body = {key: item for key, item in records[number].items() if key not in ("hash", "previous")}
        value, said = next(one for _ in iter(int, 1) if _is_finite((one := changed_json(body, chance))[0]))
        records[number] = value if isinstance(value, dict) else {"record": value}
        what.append((number, said))

    rewrite(folder, change)
    return what


def _is_finite(value: object) -> bool:
    """A ledger cannot hold NaN or infinity: nothing seals them."""
    with suppress(ValueError):
        return bool(json.dumps(value, allow_nan=False))
    return False


def _tensors(pattern: str) -> Callable[[Path, random.Random], object]:
    """The header of a safetensors file, and the JSON texts inside it; the file's own digest is made anew."""

    def change(folder: Path, chance: random.Random) -> object:
        path = chance.choice(sorted(folder.glob(pattern)))
        header, rest = read_header(path.read_bytes())
        inner = [name for name, text in header["__metadata__"].items() if text.startswith("{")]
        if inner and chance.random() < 0.7:
            value, what = changed_json(json.loads(header["__metadata__"][inner[0]]), chance)
            header["__metadata__"][inner[0]] = json.dumps(value)
        else:
            header, what = changed_json(header, chance)
        path.write_bytes(_with_digest(with_header(header, rest)))
        return path.name, what

    return change


def _with_digest(data: bytes) -> bytes:
    blank = digests._PLACE.sub(f'{digests.NAME}":"{digests.UNKNOWN}"'.encode(), data)
    return digests.with_digest(blank) if digests._PLACE.search(blank) else data


def _listed(change: Callable[[Path, random.Random], object]) -> Callable[[Path, random.Random], object]:
    """And the manifest made anew, for the ledger as it is."""

    def changed(folder: Path, chance: random.Random) -> object:
        what = change(folder, chance)
        manifest = json.loads((folder / "artefacts.json").read_text())
        manifest["files"] = {name: file_hash((folder / name).read_bytes()) for name in manifest["files"]}
        (folder / "artefacts.json").write_text(json.dumps(manifest, separators=(",", ":"), sort_keys=True) + "\n")
        return what

    return changed


def _bundle(folder: Path, chance: random.Random) -> object:
    change = chance.choice((_json_file("run.json", "statement.json"), _tensors("posterior.*"), _ledger))
    what = change(folder, chance)
    with suppress(Exception):  # where there are no words for such a statement, the old ones stay
        (folder / "statement.md").write_text(in_words(json.loads((folder / "statement.json").read_text())))
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "SHA256SUMS"}
    (folder / "SHA256SUMS").write_bytes(sums_of(files))
    return what


def _schema(folder: Path, chance: random.Random) -> object:
    path = folder / chance.choice(("flag.toml", "number.toml"))
    text = changed_text(path.read_text(), chance)
    path.write_text(text)
    return text[:200]


# what is asked of them


def _guarantees(said: Said) -> list[Any]:
    found: list[Any] = json.loads(said.out)["guarantees"] if said.code == 0 else []
    return found


def _refused(folder: Path, truth: Truth) -> str:
    """The manifest names a head that a changed ledger does not have; as a ledger alone it is read or refused."""
    for words in (("account", folder, "--json"), ("predict", folder, truth.table.test, "--out", folder / "p.csv")):
        said = tacit(*words)
        if said.fault or (words[0] == "account" and said.code == 0 and _guarantees(said) != truth.guarantees):
            return f"tacit {words[0]}: {said.fault or 'accepted'}"
    alone = folder.parent / "alone"
    alone.mkdir()
    for name in ("ledger.jsonl", "ledger.jsonl.head"):
        shutil.copy(folder / name, alone / name)
    asked = (("account", alone, "--json"), ("ledger", "show", alone), ("ledger", "verify", alone, "--json"))
    return next((f"tacit {words[0]}: {fault}" for words in asked if (fault := tacit(*words).fault)), "")


def _released(folder: Path, truth: Truth) -> str:
    """A run that is released says what it would have said, and the bundle is good."""
    bundle = folder.parent / "out"
    for words in (
        ("predict", folder, truth.table.test, "--out", folder.parent / "p.csv"),
        ("report", folder, "--format", "json"),
        ("release", folder, "--out", bundle),
    ):
        said = tacit(*words)
        if said.fault:
            return f"tacit {words[0]}: {said.fault}"
    return _checked(bundle, truth) if said.code == 0 else ""


def _checked(bundle: Path, truth: Truth) -> str:
    said = tacit("release", "--check", bundle, "--json")
    if said.code:
        return said.fault
    statement = json.loads(said.out)["statement"]
    now = {name: item for name, item in statement.items() if name not in ("ledger", "verify")}
    then = {name: item for name, item in truth.statement.items() if name not in ("ledger", "verify")}
    if now != then:
        return f"accepted: {[(name, now.get(name)) for name in then if now.get(name) != then[name]]}"
    facts = json.loads((bundle / "run.json").read_text())
    known = {"epsilon": EPSILON, "delta": 1e-5, "n_records": 120, "unit": "record", "dataset": "small"}
    told = {name: facts.get(name) for name in known}
    unsaid = {(name, None) for name in ("n_records", "dataset")}
    lies = {name: value for name, value in told.items() if value != known[name] and (name, value) not in unsaid}
    return f"accepted, though run.json says {lies}" if lies else ""


def _taken_up(folder: Path, truth: Truth) -> str:
    """A run goes on from its checkpoint, or is refused: the ledger alone says what it cost."""
    before = (folder / "ledger.jsonl").read_bytes()
    said = tacit(*truth.table.resume(folder))
    if said.fault or said.code:
        return said.fault
    if not (folder / "ledger.jsonl").read_bytes().startswith(before):
        return "charges are gone"
    return fault_of_run(folder, truth.table.test)


def _diagnosed(folder: Path, truth: Truth) -> str:
    """Private diagnostics may differ, the guarantees may not."""
    for words in (("account", folder, "--bayesian", "--json"), ("report", folder, "--bayesian", "--format", "md")):
        said = tacit(*words)
        if said.fault:
            return f"tacit {words[0]}: {said.fault}"
        if words[0] == "account" and said.code == 0 and _guarantees(said) != truth.guarantees:
            return "the guarantees changed"
    return ""


def _trained(folder: Path, truth: Truth) -> str:
    for target in ("flag", "number"):
        table, out = SmallTable(folder), folder / f"run-{target}"
        said = tacit(*table.train(target, out))
        if said.fault:
            return f"tacit train: {said.fault}"
        if said.code == 0 and (fault := tacit("release", out, "--out", folder / f"out-{target}").fault):
            return f"tacit release: {fault}"
    return ""


KINDS = [
    Kind("ledgers and heads of runs", "run", 2000, _ledger, _refused),
    Kind("heads of ledgers", "run", 300, _json_file("ledger.jsonl.head"), _refused),
    Kind("run.json and its manifest", "run", 2500, _listed(_json_file("run.json", "evaluation.json")), _released),
    Kind("manifests", "run", 500, _json_file("artefacts.json"), _released),
    Kind("posteriors and their manifest", "run", 800, _listed(_tensors("posterior.*")), _released),
    Kind("evidence", "run", 800, _tensors("evidence.*"), _diagnosed),
    Kind("checkpoints of stopped runs", "run-stopped", 700, _tensors("checkpoint.safetensors"), _taken_up),
    Kind("received bundles", "bundle", 2000, _bundle, _checked),
    Kind("schemas", "schemas", 400, _schema, _trained),
]
