"""What grows with ranks, records and parameters: ``python benchmarks/scale.py [ranks|records|parameters] [--quick]``.

``python benchmarks/scale.py shards`` asks how much two ranks of shards gain on one: a job of each in turn, four times;
``large-shards`` of a model that is too large to be whole through a step.

Every measurement is a process, or a job of several, of its own, with one thread a rank. Steps are timed through
``private.samples`` and ``private.backward``, the optimizer's step is not; the first ones are not counted. Memory is the
most that a process held (VmHWM), above what it held before the model was made.
"""

import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

MIB = 2**20
WARM, STEPS, ROUNDS = 2, 8, 4


def held() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def measured(asked: dict[str, Any]) -> dict[str, float]:
    """One rank's figures."""
    import torch
    import torch.distributed as dist
    from torch import nn

    import tacit

    torch.set_num_threads(1)
    if asked["ranks"] > 1 or asked["sharded"]:
        dist.init_process_group("gloo")
    width, layers, records = asked["width"], asked["layers"], asked["records"]
    generator = torch.Generator().manual_seed(1)
    data = (torch.randn(records, asked["inputs"], generator=generator), torch.randint(0, 10, (records,)))
    before = held()
    body = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)]
    model = nn.Sequential(nn.Linear(asked["inputs"], width), nn.ReLU(), *body, nn.Linear(width, 10))
    parameters = sum(value.numel() for value in model.parameters())
    if asked["sharded"]:
        from torch.distributed.fsdp import fully_shard

        for block in (*body, model):
            fully_shard(block)
    with tempfile.TemporaryDirectory() as folder:
        path = os.environ.get("LEDGER", f"{folder}/ledger.jsonl")
        began = time.perf_counter()
        private = tacit.PrivateGradient(
            model,
            lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none"),
            tacit.PoissonSampling.of(batch_size=asked["batch"], dataset_size=records),
            tacit.ClipRecords(1.0),
            tacit.GaussianNoise(multiplier=1.0),
            ledger=path,
        )
        times = []
        for sample in private.samples(data, WARM + asked["steps"]):
            if sample.step == 0:
                setup = time.perf_counter() - began
            private.backward(sample)
            model.zero_grad()
            times.append(time.perf_counter())
        private.close()
    seconds = [after - before for before, after in zip(times[WARM - 1 :], times[WARM:], strict=False)]
    return {"parameters": parameters, "ms": 1e3 * statistics.median(seconds), "setup": setup,
            "mib": (held() - before) / MIB}  # fmt: skip


def job(**asked: Any) -> dict[str, Any]:
    """The slowest rank's time and the largest rank's memory."""
    asked = {"ranks": 1, "sharded": False, "inputs": 64, "steps": STEPS, **asked}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        shared = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(asked["ranks"]), "MASTER_ADDR": "127.0.0.1",
                  "MASTER_PORT": str(port), "LEDGER": f"{folder}/ledger.jsonl"}  # fmt: skip
        command = [sys.executable, "-W", "ignore", __file__, "--one", json.dumps(asked)]
        started = [
            subprocess.Popen(command, env={**shared, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
            for rank in range(asked["ranks"])
        ]
        found = [json.loads(process.communicate()[0].splitlines()[-1]) for process in started]
    return {**asked, **{name: max(one[name] for one in found) for name in found[0]}}


def of_ranks(count: int, sharded: bool, width: int = 512, steps: int = 4, share: int = 1) -> dict[str, Any]:
    return job(ranks=count, sharded=sharded, width=width, layers=6, records=100_000 // share, batch=8192 // share,
               steps=steps)  # fmt: skip


def ranks(quick: bool) -> Iterator[dict[str, Any]]:
    for sharded in (False, True):
        for count in (1, 2) if quick else (1, 2, 4):
            yield of_ranks(count, sharded)


def busy() -> tuple[float, float, float]:
    """Seconds: of the clock, of processors that anybody used, other machines of the host too, and that our jobs did."""
    user, nice, system, _, _, _, _, stolen = map(int, Path("/proc/stat").read_text().split()[1:9])
    ours = resource.getrusage(resource.RUSAGE_CHILDREN)
    anybody = (user + nice + system + stolen) / os.sysconf("SC_CLK_TCK")
    return time.perf_counter(), anybody, ours.ru_utime + ours.ru_stime


def two_apart(width: int) -> float:
    """ms a step of the slower of two jobs at once with half of the records each, which know nothing of each other."""
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda share: of_ranks(1, True, width, steps=6, share=share), (2, 2))
        return float(max(one["ms"] for one in found))


def two_for_one(width: int, rounds: int) -> None:
    """How many times the records of one rank two do, both in shards; what two cores of this machine could do at best
    at that time; and how many cores others took meanwhile."""
    print("| parameters | ms of one | ms of two | ratio | of two apart | cores of others |\n|---|---|---|---|---|---|")
    ratios = []
    for _ in range(rounds):
        before = busy()
        one, two = (of_ranks(count, True, width, steps=6) for count in (1, 2))
        apart = one["ms"] / two_apart(width)
        seconds, anybody, ours = (now - then for now, then in zip(busy(), before, strict=True))
        ratios.append(one["ms"] / two["ms"])
        figures = f"{one['parameters']:.1e} | {one['ms']:.0f} | {two['ms']:.0f} | {ratios[-1]:.2f} | {apart:.2f}"
        print(f"| {figures} | {max(0.0, anybody - ours) / seconds:.2f} |", flush=True)
    print(f"{rounds} rounds: median {statistics.median(ratios):.2f}, least {min(ratios):.2f}")


def records(quick: bool) -> Iterator[dict[str, Any]]:
    for size in (10**4, 10**5) if quick else (10**4, 10**5, 10**6, 10**7):
        yield job(width=64, layers=0, records=size, batch=256, inputs=16, steps=50)


def parameters(quick: bool) -> Iterator[dict[str, Any]]:
    for width, layers in ((96, 0), (256, 2)) if quick else ((96, 0), (256, 2), (1024, 9), (3072, 10)):
        yield job(width=width, layers=layers, records=10_000, batch=64, steps=3 if width > 1024 else STEPS)


def shown(found: dict[str, Any]) -> str:
    kind = "shards" if found["sharded"] else "replicas" if found["ranks"] > 1 else "one process"
    return (
        f"| {kind} | {found['ranks']} | {found['records']:.0e} | {found['parameters']:.1e} | {found['batch']} | "
        f"{found['ms']:.3g} | {1e3 * found['batch'] / found['ms']:.3g} | {found['mib']:.0f} | {found['setup']:.2f} |"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measured(json.loads(sys.argv[2]))))
        import torch.distributed

        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        sys.exit()
    parts = {"ranks": ranks, "records": records, "parameters": parameters}
    widths = {"shards": 512, "large-shards": 1024}
    if not {*sys.argv[1:]} <= {*parts, *widths, "--quick"}:
        sys.exit(__doc__)
    for width in [widths[name] for name in sys.argv[1:] if name in widths]:
        two_for_one(width, 2 if "--quick" in sys.argv else ROUNDS)
    if {*sys.argv[1:]} & {*widths}:
        sys.exit()
    print("| how | ranks | records | parameters | sample | ms a step | records a second | MiB a rank | set-up s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in [name for name in parts if name in sys.argv[1:]] or parts:
        for one in parts[name]("--quick" in sys.argv):
            print(shown(one), flush=True)
