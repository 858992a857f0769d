"""Time of a private step on ten families of Hugging Face models and two with LoRA, next to the plain step.

    python benchmarks/families.py --threads 2 --rounds 15 --write docs/benchmarks.md

Both loops and the timing are those of step.py: samples of random size, ledger on disk, torch.optim.SGD, rounds that
interleave.
"""

import argparse
import copy
import time
import warnings
from pathlib import Path

import torch
from contenders import plain, tacit_loop
from document import versions, write_section
from model_families import FAMILIES, REAL, Size, build
from step import compare

_TINY = Size(records=16)


def time_family(name: str, size: Size, rounds: int, clock: str) -> dict[str, dict[str, float]]:
    torch.manual_seed(0)
    model, batch, losses = build(name, size)
    steps = {"plain": plain(copy.deepcopy(model), batch, losses), "tacit": tacit_loop(model, batch, losses)}
    for step in steps.values():
        for _ in range(3):
            step()
    return compare(steps, rounds, time.process_time if clock == "cpu" else time.perf_counter)


def line(name: str, real: dict[str, dict[str, float]], tiny: dict[str, dict[str, float]]) -> str:
    more = tiny["tacit"]["ms"] - tiny["plain"]["ms"]
    cells = [f"{found['plain']['ms']:.3g} ms | {_ratio(**found['tacit'])}" for found in (real, tiny)]
    return f"| {name} | {' | '.join(cells)} | {more:.0f} ms |"


def _ratio(ratio: float, low: float, high: float, ms: float) -> str:
    return f"{ratio:.2f} ({low:.2f}-{high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--clock", choices=["wall", "cpu"], default="wall", help="cpu: for one thread on a busy machine"
    )
    parser.add_argument("--write", type=Path, help="the Markdown file whose section is replaced")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    lines = ["| family | plain | tacit | plain, tiny | tacit, tiny | more a tiny step |", "|---" * 6 + "|"]
    for name in options.families:
        lines.append(line(name, *(time_family(name, size, options.rounds, options.clock) for size in (REAL, _TINY))))
        print(lines[-1], flush=True)
    clock = "wall clock" if options.clock == "wall" else "processor time"
    title = f"Ratio to the plain step, {options.threads} thread(s), {clock}: median (quartiles)."
    sizes = f"Real: {REAL}. Tiny: {_TINY}."
    text = "\n".join([title, sizes, versions("torch", "transformers", "peft") + ".", "", *lines])
    print(text)
    if options.write:
        write_section(options.write, f"families:{options.threads}-{options.clock}", text)


if __name__ == "__main__":
    main()
