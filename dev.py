"""Set up and run, on a machine that has only Python 3.11 and pip.

    python3 dev.py demo     set up (own virtual environment) and run the demo
    python3 dev.py test     set up and pass the tests: ruff, mypy, pytest
    python3 dev.py slow     set up and run the slow tests as well
    python3 dev.py reliability   set up, try to break every promise of docs/failure-modes.md, print the table

Standard library only. The environment lies in .venv; it is made anew when what it is made from changes.
"""

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
HOME = ROOT / ".venv"
BIN = HOME / ("Scripts" if os.name == "nt" else "bin")
STAMP = HOME / "made-from"


def made_from() -> str:
    """What the environment depends on."""
    parts = [(ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt")]
    return hashlib.sha256(b"\0".join([sys.version.encode(), *parts])).hexdigest()


def set_up() -> None:
    if STAMP.exists() and STAMP.read_text() == made_from():
        return
    print("setting up .venv (a few minutes the first time) ...", flush=True)
    venv.create(HOME, with_pip=True, clear=True)
    # torch first and pinned: left to a resolver, a newer torch would bring gigabytes of CUDA packages.
    pip("torch==2.13.0")
    pip("--editable", ".[test]")
    STAMP.write_text(made_from())


def pip(*what: str) -> None:
    command = [BIN / "python", "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    run(*command, "--constraint", "constraints.txt", *what)


def run(*command: "str | Path") -> None:
    done = subprocess.run([str(part) for part in command], cwd=ROOT)
    if done.returncode:
        sys.exit(done.returncode)


def demo() -> None:
    run(BIN / "tacit", "demo")


def check() -> None:
    run(BIN / "ruff", "check", ".")
    run(BIN / "ruff", "format", "--check", ".")
    run(BIN / "mypy")


def test() -> None:
    check()
    # One thread for each of the two processes; with more they wait for each other.
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    run(BIN / "python", "-m", "pytest", "-q", "-n", "2")


def slow() -> None:
    check()
    run(BIN / "python", "-m", "pytest", "-q", "-m", "slow or not slow")


def reliability() -> None:
    run(BIN / "python", "-m", "reliability", "--write", "docs/reliability.md")


def main() -> None:
    tasks = {"demo": demo, "test": test, "slow": slow, "reliability": reliability}
    if len(sys.argv) != 2 or sys.argv[1] not in tasks:
        sys.exit(__doc__)
    set_up()
    tasks[sys.argv[1]]()


if __name__ == "__main__":
    main()
