"""The lock: every version of the constraints, every one by hash, and what the bill of materials says about it."""

import re
import tomllib
from pathlib import Path

from tools.sbom import bill

ROOT = Path(__file__).parent.parent
LOCK = (ROOT / "requirements.lock").read_text()


def names(text):
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^ \n]+)", text, re.M)
    return {f"{re.sub(r'[-_.]+', '-', name).lower()}=={version}" for name, version in found}


def test_lock_and_constraints_name_the_same_versions():
    assert names(LOCK) == names((ROOT / "constraints.txt").read_text())
    for extra in ("integrations", "flower", "site"):
        locked = names((ROOT / f"requirements-{extra}.lock").read_text())
        assert locked == names((ROOT / f"constraints-{extra}.txt").read_text())
        assert not locked & names(LOCK)
        assert not any(name.startswith(("torch==", "nvidia")) for name in locked)


def test_every_entry_has_a_hash_and_nothing_else_is_in_the_lock():
    entry = re.compile(r"[A-Za-z0-9._-]+==\S+(?: \\\n    --hash=sha256:[0-9a-f]{64})+")
    left = entry.sub("", "".join(line for line in LOCK.splitlines(keepends=True) if not line.startswith("#")))
    assert not left.strip()


def test_torch_has_the_hash_of_its_cpu_build_and_of_the_ordinary_one():
    torch = re.search(r"^torch==2\.13\.0((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", LOCK, re.M)
    (cpu,) = re.findall(r"[0-9a-f]{64}", (ROOT / "requirements-cpu.lock").read_text())
    locked = re.findall(r"[0-9a-f]{64}", torch.group(1))
    assert cpu in locked
    assert len(locked) >= 2
    assert not any(name.startswith("nvidia") for name in names(LOCK))


def test_what_the_project_needs_is_locked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"] + project["project"]["optional-dependencies"]["test"]
    wanted += project["build-system"]["requires"]
    locked = {name.partition("==")[0] for name in names(LOCK)}
    assert {re.match(r"[A-Za-z0-9._-]+", one).group().lower() for one in wanted} <= locked


def test_the_bill_of_materials_lists_the_lock():
    project = {"name": "tacit", "version": "0", "license": "Apache-2.0"}
    found = bill(LOCK, project)
    assert {f"{part['name']}=={part['version']}" for part in found["components"]} == names(LOCK)
    assert all(part["externalReferences"] for part in found["components"])
    assert found == bill(LOCK, project)
