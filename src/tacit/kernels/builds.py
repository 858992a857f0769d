"""How the C sources of this folder become a library: for one processor, or ahead for all of a kind.

Standard library only and nothing of Tacit: ``setup.py`` builds wheels with it where Tacit is not installed yet.
"""

import os
import platform
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
AHEAD = HERE / "ahead"  # in a wheel: one library for each set of instructions
IS_X86 = platform.machine() in ("x86_64", "AMD64")
# The noise is that of the x86 instructions for AES; elsewhere PyTorch draws it.
SOURCES = sorted(path for path in HERE.glob("*.c") if IS_X86 or path.stem != "noise")
FLAGS = ["-O3", "-std=gnu11", "-fPIC"]
FLAGS += ["-fno-math-errno", "-fno-trapping-math"]  # without them a square root keeps a loop from becoming vectors
WIDE = ["-mprefer-vector-width=512"]
NATIVE = ["-march=native", *(WIDE if IS_X86 else [])]
THREADS = ["-fopenmp"]
_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Instructions:
    """A set of instructions that a library is built ahead for: what a processor must say that it has."""

    name: str
    flags: tuple[str, ...]
    needs: frozenset[str]


_OLD = frozenset({"aes", "lahf_lm", "popcnt", "ssse3", "sse4_1", "sse4_2", "cx16"})
_AVX2 = _OLD | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "vaes"}
_OF_X86 = (  # the best first
    Instructions("avx512", ("-march=x86-64-v4", "-maes", "-mvaes", *WIDE), _AVX512),
    Instructions("avx2", ("-march=x86-64-v3", "-maes"), _AVX2),
    Instructions("baseline", ("-march=x86-64-v2", "-maes"), _OLD),
)
_PORTABLE = (Instructions("portable", (), frozenset()),)
SETS = _OF_X86 if IS_X86 else _PORTABLE if platform.machine() == "aarch64" else ()


def processor_flags() -> frozenset[str]:
    """What this processor says it has; nothing where nobody tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return next((frozenset(line.split(":")[1].split()) for line in lines if line.startswith("flags")), frozenset())


def ahead() -> list[tuple[str, Path]]:
    """The libraries that came with this installation and that this processor can run, the best first."""
    has = processor_flags()
    found = [(one.name, AHEAD / f"{one.name}.so") for one in SETS if one.needs <= has]
    return [(name, path) for name, path in found if path.is_file()]


def build_ahead(folder: Path) -> list[Path]:
    """Build every set of this kind of processor into a folder; none where nothing can be built."""
    compiler = find_compiler()
    if compiler is None or os.name != "posix":
        return []
    folder.mkdir(parents=True, exist_ok=True)
    return [_build_set(compiler, one, folder) for one in SETS]


def _build_set(compiler: str, one: Instructions, folder: Path) -> Path:
    target = folder / f"{one.name}.so"
    build(compiler, [*FLAGS, *one.flags, *THREADS], SOURCES, target)
    for leftover in folder.glob("*.o"):
        leftover.unlink()
    return target


def find_compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


def build(compiler: str, flags: list[str], sources: list[Path], target: Path) -> None:
    """Compile and link, with the objects beside the target."""
    objects = [str(target.parent / f"{source.stem}.o") for source in sources]
    commands = [[compiler, *flags, "-c", str(s), "-o", o] for s, o in zip(sources, objects, strict=True)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_run, commands))
    # Linked without -fopenmp: its symbols are found in the library that PyTorch has loaded, and so its threads.
    _run([compiler, "-shared", *objects, "-o", str(target), "-lm"])


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)
