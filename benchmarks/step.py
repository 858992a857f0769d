"""Time and memory of a private step, next to the plain one and the peers, interleaved in one run.

    python benchmarks/step.py --threads 2 --rounds 15 --write docs/benchmarks.md

Tacit's step is the public loop: draw, gather, ledger on disk, backward, torch.optim.SGD. Every round times several
steps of each contender, and a ratio is formed within a round, so that what slows the machine slows both sides. Poisson
samples differ in size: a round has enough steps that their mean does not, and the plain batch has the expected size.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from contenders import CONTENDERS, VARYING, NotRunnableError, Step, build
from document import machine, versions, write_section
from workloads import WORKLOADS

_ROUND_SECONDS = 0.1
_ROUND_STEPS = 8  # at least: samples of 64 from 256, 11 % apart from each other, are 4 % apart then
_STEPS_BEFORE = 24  # libraries make code for each new size of a sample, which a long run does not see


def can_build(name: str) -> bool:
    """Some models need libraries that may be missing."""
    try:
        WORKLOADS[name]()
    except ImportError as error:
        print(f"{name} is left out: {error}")
        return False
    return True


def time_workload(name: str, contenders: list[str], rounds: int, clock: str) -> dict[str, object]:
    """Median step time, and quartiles of the ratio to the plain step of the same round."""
    torch.manual_seed(0)
    model, batch = WORKLOADS[name]()
    now = time.process_time if clock == "cpu" else time.perf_counter
    steps: dict[str, Step] = {}
    found: dict[str, object] = {}
    for contender in contenders:
        try:
            step = build(contender, name, model, batch)
            for _ in range(_STEPS_BEFORE if contender in VARYING else 3):
                step()
            steps[contender] = step
        except NotRunnableError as reason:
            found[contender] = str(reason)
        except Exception as error:
            found[contender] = f"fails ({type(error).__name__})"
    return found | compare(steps, rounds, now)


def compare(steps: dict[str, Step], rounds: int, now: Callable[[], float]) -> dict[str, dict[str, float]]:
    """Steps next to the one called plain, which have run before."""
    start = now()
    steps["plain"]()
    repeats = max(_ROUND_STEPS, int(_ROUND_SECONDS / max(now() - start, 1e-6)))
    times: dict[str, list[float]] = {contender: [] for contender in steps}
    for _ in range(rounds):
        for contender, step in steps.items():
            start = now()
            for _ in range(repeats):
                step()
            times[contender].append((now() - start) / repeats)
    found = {}
    for contender, values in times.items():
        ratios = [value / base for value, base in zip(values, times["plain"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        found[contender] = {"ms": 1e3 * statistics.median(values), "low": low, "ratio": middle, "high": high}
    return found


def peak_memory(name: str, contender: str) -> float | None:
    """Peak resident memory of a few steps above what the imports take, in a process of its own, in MB."""
    command = [sys.executable, __file__, "--memory-of", name, contender]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    return float(done.stdout.split()[-1]) if done.returncode == 0 and done.stdout.strip() else None


def print_peak(name: str, contender: str) -> None:
    torch.manual_seed(0)
    torch.nn.Linear(8, 8)(torch.randn(4, 8)).sum().backward()  # what the first use of the library takes
    before = _resident("VmRSS")
    model, batch = WORKLOADS[name]()
    step = build(contender, name, model, batch)
    for _ in range(4):
        step()
    print(_resident("VmHWM") - before)


def _resident(field: str) -> float:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return float(line.split()[1]) / 1024


def table(results: dict[str, dict[str, object]], memory: dict[str, dict[str, float | None]]) -> str:
    names = list(results)
    lines = ["| contender | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for contender in CONTENDERS:
        if contender not in next(iter(results.values())):
            continue
        cells = [_cell(results[name].get(contender), memory.get(name, {}), contender) for name in names]
        lines.append(f"| {contender} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(value: object, memory: dict[str, float | None], contender: str) -> str:
    if not isinstance(value, dict):
        return str(value)
    peak, base = memory.get(contender), memory.get("plain")
    held = f" [{peak / base:.2f}]" if peak and base and base > 20 else ""
    if contender == "plain":
        return f"{value['ms']:.3g} ms"
    return f"{value['ratio']:.2f} ({value['low']:.2f}-{value['high']:.2f}){held}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--contenders", nargs="+", default=list(CONTENDERS), choices=list(CONTENDERS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--clock", choices=["wall", "cpu"], default="wall", help="cpu: for one thread on a busy machine"
    )
    parser.add_argument("--memory", action="store_true", help="measure peak memory too, in processes of their own")
    parser.add_argument("--write", type=Path, help="the Markdown file whose section is replaced")
    parser.add_argument("--memory-of", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    if options.memory_of:
        print_peak(*options.memory_of)
        return
    state = machine()
    contenders = ["plain", *(name for name in options.contenders if name != "plain")]
    results, memory = {}, {}
    for name in options.workloads:
        if not can_build(name):
            continue
        results[name] = time_workload(name, contenders, options.rounds, options.clock)
        able = [contender for contender in contenders if isinstance(results[name][contender], dict)]
        memory[name] = {contender: peak_memory(name, contender) for contender in able} if options.memory else {}
        print(name, json.dumps(results[name], indent=1), json.dumps(memory[name]), flush=True)
    clock = "wall clock" if options.clock == "wall" else "processor time"
    title = f"Ratio to the plain step, {options.threads} thread(s), {clock}: median (quartiles) [memory]."
    said = f"{versions('torch', 'opacus', 'jax-privacy', 'transformers', 'peft')}; {state}"
    text = f"{title}\n{said}.\n\n{table(results, memory)}"
    print(text)
    if options.write:
        write_section(options.write, f"step:{options.threads}-{options.clock}", text)


if __name__ == "__main__":
    main()
