"""F25: ranks start, work and end under torchrun, over and over, several jobs at once, so that they wait for each other.

A rank once aborted at its exit ("terminate called without an active exception"): a thread of a process group that
nobody had destroyed dropped its last work while the interpreter went down.
"""

import itertools
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from reliability.figures import Figure, tries
from reliability.processes import environment

JOBS = 4  # at once, of two ranks each: more than there are cores
WAYS = ("leaves", "destroys", "trains")  # whether the program destroys its group itself; a training does all there is
SCRIPT = """
import sys
from pathlib import Path
import torch.distributed as dist
from tacit.distributed import current_ranks
dist.init_process_group("gloo")
ranks = current_ranks()
if sys.argv[1] == "trains":
    from reliability.f25_ranks import trained
    trained(Path(sys.argv[2]), 0)
for _ in range(50):
    assert ranks.from_first([0, 1, 2] if ranks.first else None) == [0, 1, 2]
    ranks.together(lambda: None)
if sys.argv[1] == "destroys":
    dist.destroy_process_group()
"""


def prove(effort: float) -> Iterable[Figure]:
    times = tries(200, effort, least=len(WAYS))
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(min(JOBS, times)) as pool:
        script = Path(name) / "script.py"
        script.write_text(SCRIPT)
        ways = itertools.islice(itertools.cycle(WAYS), times)
        found = list(pool.map(lambda job: fault(script, job[1], Path(name) / str(job[0])), enumerate(ways)))
    wrong = [one for one in found if one]
    yield Figure("F25", "jobs of two ranks under torchrun, four at once, that start and end", times, len(wrong),
                 "; ".join(wrong[:1]) or f"{2 * times} ranks, a third each: {', '.join(WAYS)}",
                 "exit code 0, no abort")  # fmt: skip


def fault(script: Path, how: str, folder: Path) -> str:
    """What was wrong with how a job ended; nothing if all is well."""
    folder.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(script), how, str(folder)], env=environment(), capture_output=True, text=True, cwd=folder
    )
    aborted = "terminate called" in done.stderr or "core dumped" in done.stderr
    return f"{how}: exit {done.returncode}: {done.stderr[-500:]}" if done.returncode or aborted else ""
