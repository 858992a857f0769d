"""Set up and run, on a machine that has only Python 3.11 and pip.

    python3 dev.py demo     set up (own virtual environment) and run the demo
    python3 dev.py test     set up and pass the tests: ruff, mypy, pytest
    python3 dev.py slow     set up and run the slow tests as well
    python3 dev.py integrations   set up Hugging Face and Lightning (.venv-integrations) and test Tacit in their loops
    python3 dev.py flower   the same for Flower (.venv-flower), whose versions differ from ours
    python3 dev.py site     build the pages (.venv-site) into build/site, offline; a warning or a dead link is an error
    python3 dev.py reliability   set up, try to break every promise (docs/reliability.md), print the table
    python3 dev.py audit-dependencies   ask the advisory database about every locked version (needs a network)
    python3 dev.py sbom     print a CycloneDX bill of materials of what is locked
    python3 dev.py lock     write the locks anew from the constraints

Standard library only. The environment lies in .venv; it is made anew when what it is made from changes. Nothing is
installed whose hash is not in requirements.lock.
"""

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
APART = {name: f"requirements-{name}.lock" for name in ("integrations", "flower", "site")}  # each in its own
HOME = ROOT / (f".venv-{sys.argv[1]}" if len(sys.argv) > 1 and sys.argv[1] in APART else ".venv")
BIN = HOME / ("Scripts" if os.name == "nt" else "bin")
STAMP = HOME / "made-from"
CPU = "requirements-cpu.lock"


def made_from(more: str = "") -> str:
    """What the environment depends on."""
    names = filter(None, ("pyproject.toml", "requirements.lock", CPU, more))
    parts = [(ROOT / name).read_bytes() for name in names]
    return hashlib.sha256(b"\0".join([sys.version.encode(), *parts])).hexdigest()


def set_up(more: str = "") -> None:
    """The environment of these locks, unless it is there; ``more`` names a second lock."""
    made = made_from(more)
    if STAMP.exists() and STAMP.read_text() == made:
        return
    print(f"setting up {HOME.name} (a few minutes the first time) ...", file=sys.stderr, flush=True)
    venv.create(HOME, with_pip=True, clear=True)
    # The CPU build of torch where there is one; else the ordinary build, which outside Linux is the same.
    pip("--require-hashes", "--requirement", CPU, may_fail=True)
    # Without dependencies: the lock names all that is needed, and the ordinary torch would bring gigabytes of CUDA.
    for lock in filter(None, ("requirements.lock", more)):
        pip("--require-hashes", "--only-binary", ":all:", "--requirement", lock)
    pip("--no-build-isolation", "--editable", ".")  # built by the locked setuptools, not by one fetched for it
    STAMP.write_text(made)
    check_torch()


def pip(*what: str, may_fail: bool = False) -> None:
    command = [BIN / "python", "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-deps", *what]
    if may_fail:
        subprocess.run(command, cwd=ROOT, capture_output=True)
    else:
        run(*command)


def check_torch() -> None:
    if subprocess.run([BIN / "python", "-c", "import torch"], capture_output=True).returncode:
        sys.exit(
            "torch does not start: this package index offers only its CUDA build, without whose libraries (gigabytes) "
            f"it cannot run. Give pip an index with the CPU build and remove {HOME}, or install the libraries with\n"
            f"    {BIN / 'python'} -m pip install torch==2.13.0\nand repeat the command."
        )


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


def test(*which: str) -> None:
    check()
    # One thread for each of the two processes; with more they wait for each other.
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    run(BIN / "python", "-m", "pytest", "-q", "-n", "2", *which)


def slow() -> None:
    test("-m", "slow or not slow")


def integrations() -> None:
    """In an environment of its own: what the tests of Tacit pass without must not be there."""
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    run(BIN / "python", "-m", "pytest", "-q", "-n", "2", "tests/integrations", "tests/gradients/test_large_models.py")


def flower() -> None:
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    quiet = ("-W", "ignore::DeprecationWarning")  # of its typer about its click
    tests = ("tests/integrations/test_flower.py", "tests/integrations/test_integration_examples.py")
    run(BIN / "python", "-m", "pytest", "-q", *quiet, *tests)


def site() -> None:
    options = ("-q", "--fail-on-warning", "--keep-going", "--fresh-env", "--jobs", "2", "--builder", "html")
    run(BIN / "python", "-m", "sphinx", *options, "docs", "build/site")
    print("build/site/index.html")


def reliability() -> None:
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    run(BIN / "python", "-m", "reliability", "--jobs", "2", "--write", "docs/reliability.md")


def audit_dependencies() -> None:
    """In an environment of its own: the auditor must not change what it audits."""
    home = ROOT / ".venv-audit"
    if not home.exists():
        venv.create(home, with_pip=True)
        run(home / BIN.name / "python", "-m", "pip", "install", "-qq", "pip-audit==2.10.1")
    # strict: a package that the database cannot be asked about is a failure, not a pass.
    run(home / BIN.name / "pip-audit", "--strict", "--disable-pip", "--require-hashes", "-r", "requirements.lock")


def sbom() -> None:
    run(BIN / "python", "tools/sbom.py")


def lock() -> None:
    run(BIN / "python", "tools/lock.py")


def main() -> None:
    tasks = {
        "demo": demo, "test": test, "slow": slow, "integrations": integrations, "flower": flower, "site": site,
        "reliability": reliability,
        "audit-dependencies": audit_dependencies, "sbom": sbom, "lock": lock,
    }  # fmt: skip
    if len(sys.argv) != 2 or sys.argv[1] not in tasks:
        sys.exit(__doc__)
    set_up(APART.get(sys.argv[1], ""))
    tasks[sys.argv[1]]()


if __name__ == "__main__":
    main()
