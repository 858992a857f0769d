"""Run the tests of the kernels as aarch64, emulated: ``python tools/aarch64.py FOLDER``.

A compiler for aarch64 builds the portable kernels, as a wheel would hold them, and Debian's Python for arm64 with
PyTorch's wheel for aarch64 compares them with PyTorch under ``qemu-aarch64``. Needs Debian with ``qemu-user`` and
``gcc-aarch64-linux-gnu``, and a network the first time: what is fetched lies in FOLDER, and the system is left as it
is. It takes some minutes; figures of speed would mean nothing.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
DEBIAN = ("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6", "libstdc++6", "libgcc-s1",
          "zlib1g", "libexpat1", "libssl3", "libffi8", "libbz2-1.0", "liblzma5", "libuuid1", "libcrypt1")  # fmt: skip
# The newest PyTorch whose wheel for aarch64 brings no CUDA; kernels ask nothing of it that a later one lacks.
WHEELS = ("torch==2.8.0", "numpy", "cryptography", "cffi", "pycparser", "sympy", "mpmath", "networkx", "jinja2",
          "markupsafe", "filelock", "fsspec", "typing-extensions", "pytest", "pluggy", "iniconfig", "packaging",
          "pygments", "hypothesis", "sortedcontainers")  # fmt: skip
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
TESTS = ("test_kernel_layers.py", "test_kernel_sums.py")  # the others compile


def missing() -> str:
    """What is not there, in one line, or nothing."""
    absent = [name for name in (COMPILER, EMULATOR) if shutil.which(name) is None]
    return f"needs {' and '.join(absent)} (Debian's qemu-user, gcc-aarch64-linux-gnu)" if absent else ""


def prepare(folder: Path) -> None:
    """Debian's Python for arm64 and the wheels, once."""
    if (folder / "ready").exists():
        return
    for name in ("debian", "lists/partial", "cache/archives/partial", "root"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    apart = [f"Dir::State::lists={folder}/lists", f"Dir::Cache={folder}/cache", "Dir::State::status=/dev/null",
             "APT::Architecture=arm64", "APT::Architectures=arm64"]  # fmt: skip
    apt = ["apt-get", "-qq", *(word for option in apart for word in ("-o", option))]
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "download", *DEBIAN], cwd=folder / "debian", check=True)
    for package in sorted((folder / "debian").glob("*.deb")):
        subprocess.run(["dpkg", "-x", package, folder / "root"], check=True)  # noqa: S607
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--python-version",
        "3.11",
    ]
    subprocess.run([*pip, *platforms, "--target", folder / "site", *WHEELS], check=True)
    (folder / "ready").touch()


def build(folder: Path) -> Path:
    """A copy of the sources with the kernels of a wheel for aarch64."""
    shutil.rmtree(folder / "src", ignore_errors=True)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "ahead"))
    sys.path.insert(0, str(folder / "src" / "tacit" / "kernels"))
    import builds

    ahead = folder / "src" / "tacit" / "kernels" / builds.AHEAD.name
    ahead.mkdir()
    sources = [source for source in builds.SOURCES if source.stem != "noise"]  # made of the x86 instructions for AES
    builds.build(COMPILER, [*builds.FLAGS, *builds.THREADS], sources, ahead / "portable.so")
    return folder / "src"


def run(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Python as aarch64 without a compiler."""
    paths = os.pathsep.join(str(folder / name) for name in ("src", "site"))
    here = {"PYTHONPATH": paths, "PATH": str(folder / "empty"), "OMP_NUM_THREADS": "2", "HOME": str(folder)}
    python = [str(shutil.which(EMULATOR)), "-L", str(folder / "root"), str(folder / "root/usr/bin/python3.11")]
    return subprocess.run([*python, *words], env=here, capture_output=True, text=True, cwd=ROOT / "tests" / "kernels")


def main() -> None:
    if len(sys.argv) != 2 or missing():
        sys.exit(missing() or __doc__)
    folder = Path(sys.argv[1]).resolve()
    prepare(folder)
    build(folder)
    done = run(folder, "-c", "import torch; from tacit.kernels.state import status; print(torch.__version__, status())")
    print(done.stdout, done.stderr)
    done = run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", "-c", os.devnull, *TESTS)
    print(done.stdout[-3000:])
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
