"""Write the locks: the versions of constraints.txt with the SHA-256 of every file that may be installed.

    python3 dev.py lock

It asks the package indexes that pip is configured with, and pip's default one, for wheels that Python 3.11 to 3.13 can
use, on any platform. Local folders of wheels (find-links) count too: that is how the CPU build of torch gets its hash
beside the ordinary ones. It also has a lock of its own, requirements-cpu.lock, because pip would prefer the others.
What changed is seen in the diff; nothing is trusted that is not in it.
"""

import hashlib
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r'href="[^"]*?/?([^"/#]+\.whl)#sha256=([0-9a-f]{64})"')
PYTHONS = (11, 12, 13)  # of Python 3
MADE = "# Made by `python3 dev.py lock`.\n"
HEAD = """\
# Every file that `python3 dev.py` may install, by hash. Made by `python3 dev.py lock` from constraints.txt.
# torch: the CPU build and the ordinary builds of the same version; dev.py installs it without dependencies.
"""


def configured() -> tuple[list[str], list[Path]]:
    """Indexes and local folders of wheels, as pip knows them."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    values: dict[str, list[str]] = {"index-url": [], "extra-index-url": [], "find-links": []}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        values.setdefault(name.rpartition(".")[2], []).extend(value.strip("'\"").split())
    from pip._internal.models.index import PyPI

    indexes = [*values["index-url"], *values["extra-index-url"], PyPI.simple_url]
    folders = [Path(one.removeprefix("file://")) for one in values["find-links"]]
    return list(dict.fromkeys(indexes)), [one for one in dict.fromkeys(folders) if one.is_dir()]


def files(name: str, indexes: list[str], folders: list[Path]) -> Iterator[tuple[str, str]]:
    """(file name, hash) of all wheels of a package."""
    for index in indexes:
        try:
            yield from LINK.findall(page(f"{index.rstrip('/')}/{name}/"))
        except (urllib.error.URLError, OSError):
            continue  # this index does not have it
    for folder in folders:
        for path in sorted(folder.glob("*.whl")):
            yield path.name, hashlib.sha256(path.read_bytes()).hexdigest()


def page(address: str) -> str:
    address += "index.html" if address.startswith("file:") else ""
    with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 (pip's own indexes)
        return str(answer.read().decode())


def usable(tags: frozenset[Tag]) -> bool:
    """Whether one of the Pythons can use it; builds without the global lock (cp313t) are none of them."""
    names = {"py3", *(f"{kind}3{minor}" for kind in ("py", "cp") for minor in PYTHONS)}
    return any((tag.interpreter in names and not tag.abi.endswith("t")) or _stable(tag) for tag in tags)


def _stable(tag: Tag) -> bool:
    digits = tag.interpreter.removeprefix("cp3")
    return tag.abi == "abi3" and digits.isdigit() and int(digits) <= PYTHONS[-1]


def hashes(name: str, version: str, indexes: list[str], folders: list[Path], build: str = "") -> list[str]:
    """Of all wheels of a version, or of one local build of it such as "cpu"."""
    found = set()
    for file, digest in files(name, indexes, folders):
        try:
            of, its, _, tags = parse_wheel_filename(file)
        except InvalidWheelFilename:
            continue
        if of == name and Version(its.public) == Version(version) and usable(tags) and build in ("", its.local):
            found.add(digest)
    if not found:
        sys.exit(f"no index has a wheel of {name} {version} for Python 3.{PYTHONS[0]} to 3.{PYTHONS[-1]}")
    return sorted(found)


def main() -> None:
    os.environ.pop("PYTHONPATH", None)
    indexes, folders = configured()
    write("constraints.txt", "requirements.lock", HEAD, indexes, folders)
    for extra in ("integrations", "flower", "site"):
        write(f"constraints-{extra}.txt", f"requirements-{extra}.lock", MADE, indexes, folders)


def write(constraints: str, lock: str, head: str, indexes: list[str], folders: list[Path]) -> None:
    lines = [head]
    for line in (ROOT / constraints).read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, version = line.partition("==")
            lines.append(entry(name, version, hashes(canonicalize_name(name), version, indexes, folders)))
            if name == "torch":
                cpu = entry(name, f"{version}+cpu", hashes(canonicalize_name(name), version, indexes, folders, "cpu"))
                (ROOT / "requirements-cpu.lock").write_text(MADE + cpu)
    (ROOT / lock).write_text("".join(lines))


def entry(name: str, version: str, found: list[str]) -> str:
    return f"{name}=={version}" + "".join(f" \\\n    --hash=sha256:{one}" for one in found) + "\n"


if __name__ == "__main__":
    main()
