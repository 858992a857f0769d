"""F25 and F9: the same script under torchrun with 1, 2 and 4 ranks. Real processes, gloo on this machine.

The worker below is that script. It runs each scenario and notes the ledger's bytes and every released number, or the
error that stopped it. What is drawn and the noise are each rank's own, so that all bits can be the same for any number
of ranks only where everybody is drawn and there is no noise to speak of.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import tacit
from reliability.figures import Figure, tries
from reliability.processes import ROOT, environment
from tacit.distributed import current_ranks
from tacit.ledger import LedgerFile, read_ledger

EXACT = {"sampling": tacit.PoissonSampling(1.0, 30), "noise": tacit.GaussianNoise(stddev=1e-300)}
CLIP = tacit.ClipRecords(0.8)
NOISE = tacit.GaussianNoise(multiplier=1.0)
MARK = 0.75  # in the first column of every real record
Data = tuple[Tensor, Tensor]


def losses(model: nn.Module, batch: Data) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1], reduction="none")


def failing(model: nn.Module, batch: Data) -> Tensor:
    """Stops the last rank at its first real records, in a way that no record's values could."""
    if current_ranks().rank == current_ranks().size - 1 and (batch[0][:, 0] == MARK).all():
        raise MemoryError("this rank has no luck")
    return losses(model, batch)


def problem(seed: int) -> tuple[nn.Module, Data]:
    torch.manual_seed(seed + 1000 * current_ranks().rank)  # ranks that start apart are brought together
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    torch.manual_seed(seed)
    inputs = torch.randn(30, 6)
    inputs[:, 0] = MARK
    return model, (inputs, torch.randint(0, 3, (30,)))


def trained(folder: Path, seed: int, user_losses: Any = losses, users: Any = None, **plan: Any) -> Any:
    model, data = problem(seed)
    asked = {"sampling": tacit.PoissonSampling(0.5, 15), "clipping": CLIP, "noise": NOISE, "steps": 5, **plan}
    made = tacit.TrainingPlan(ledger=folder / "ledger.jsonl", physical_batch=4, **asked)
    source = tacit.DataSource(data, user_ids=users)
    method = tacit.SGD(model, user_losses, 0.1)
    run = tacit.train(method, source, made, keep_last=5, randomness=tacit.Randomness.seeded(seed))
    return [value.tolist() for draw in run.posterior for value in draw.values()]


def looped(folder: Path, seed: int) -> Any:
    model, data = problem(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    path, released = folder / "ledger.jsonl", []
    with tacit.PrivateGradient(
        model, losses, tacit.PoissonSampling(0.5, 15), tacit.AdaptiveClip(0.5), NOISE,
        ledger=path, physical_batch=4, randomness=tacit.Randomness.seeded(seed),
    ) as private:  # fmt: skip
        for sample in private.samples(data, steps=5):
            optimizer.zero_grad()
            private.backward(sample)
            optimizer.step()
            released.append([value.tolist() for value in model.parameters()])
    return released


def locked(folder: Path, seed: int) -> Any:
    """Somebody else writes to the ledger: rank 0 is refused, and all hear of it."""
    if current_ranks().first:
        with LedgerFile(folder / "ledger.jsonl", tacit.ledger.LedgerHeader(dataset="other")):
            pass
    return trained(folder, seed)


SCENARIOS: dict[str, Callable[[Path, int], Any]] = {
    "records": trained,
    "fixed size": lambda f, s: trained(f, s, sampling=tacit.FixedSizeSampling(12, 30)),
    "passes": lambda f, s: trained(f, s, sampling=tacit.BallsInBinsSampling(3, 10)),
    "all bits": lambda f, s: trained(f, s, deterministic=True, **EXACT),
    "all bits of users": lambda f, s: trained(f, s, unit=tacit.Users(), users=[i // 3 for i in range(30)],
                                              deterministic=True, **EXACT | {"sampling": tacit.PoissonSampling(1, 10)}),
    "strict": lambda f, s: trained(f, s, numerics="strict"),
    "users": lambda f, s: trained(f, s, unit=tacit.Users(), users=[i // 3 for i in range(30)], numerics="strict",
                                  sampling=tacit.PoissonSampling(0.5, 5)),
    "mostly empty samples": lambda f, s: trained(f, s, sampling=tacit.PoissonSampling(0.02, 0.6), steps=12),
    "adaptive clipping in a loop": looped,
    "over budget": lambda f, s: trained(f, s, budget=tacit.Budget(6.0, 1e-3), block=1, steps=40, schedule="adaptive"),
    "ledger of another run": locked,
}  # fmt: skip
LOST_RANK = "a rank fails"


def outcome(folder: Path, action: Callable[[Path, int], Any], seed: int) -> dict[str, str]:
    if current_ranks().first:
        folder.mkdir(parents=True)
    current_ranks().together(lambda: None)
    try:
        said = json.dumps(action(folder, seed))
    except (tacit.TacitError, MemoryError) as error:
        said = f"{type(error).__name__}"
    current_ranks().together(lambda: None)
    path = folder / "ledger.jsonl"
    return {"said": hashlib.sha256(said.encode()).hexdigest() if said.startswith("[") else said,
            "ledger": hashlib.sha256(path.read_bytes()).hexdigest(), "steps": str(read_ledger(path).steps)}  # fmt: skip


def worker(out: Path, seeds: int) -> None:
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    torch.set_num_threads(1)
    ranks = current_ranks()
    found = {
        f"{name} {seed}": outcome(out / f"{ranks.size}" / f"{name} {seed}", action, seed)
        for seed in range(seeds)
        for name, action in SCENARIOS.items()
    }
    if not ranks.alone:
        found[LOST_RANK] = outcome(out / f"{ranks.size}" / LOST_RANK, lambda f, s: trained(f, s, failing), 0)
    (out / f"{ranks.size}-{ranks.rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def torchrun(size: int, out: Path, seeds: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size),
         "-m", "reliability.f25_ranks", str(out), str(seeds)],
        cwd=ROOT, env=environment(TACIT_RANK_PATIENCE="1200"),  # a loaded machine may pause a rank
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"torchrun with {size} ranks ended with {done.returncode}: {done.stderr[-500:]}")


def prove(effort: float) -> Iterator[Figure]:
    seeds, sizes = tries(10, effort), (1, 2, 4) if effort >= 0.1 else (1, 2)
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        for size in sizes:
            torchrun(size, out, seeds)
        found = {path.stem: json.loads(path.read_text()) for path in sorted(out.glob("*.json"))}
    yield from compared(found, seeds)


def compared(found: dict[str, dict[str, dict[str, str]]], seeds: int) -> Iterator[Figure]:
    alone = found["1-0"]
    others = {rank: one for rank, one in found.items() if rank != "1-0"}
    cases = [(alone[case], one[case]) for one in others.values() for case in alone]
    sizes = ", ".join(sorted({rank.partition("-")[0] for rank in found}))
    ledgers = sum(a["ledger"] != b["ledger"] for a, b in cases)
    yield Figure("F25", f"ledgers of {sizes} ranks, byte for byte", len(cases), ledgers, goal="identical")
    jobs = [(found[f"{rank.partition('-')[0]}-0"][case], one[case]) for rank, one in others.items() for case in alone]
    yield Figure("F25", "every released number on every rank of a job, bit for bit", len(jobs),
                 sum(a["said"] != b["said"] for a, b in jobs), f"{len(SCENARIOS)} scenarios, {seeds} seeds",
                 "identical")  # fmt: skip
    exact = [(alone[case], one[case]) for one in others.values() for case in alone if case.startswith("all bits")]
    yield Figure("F25", f"deterministic sums of {sizes} ranks, bit for bit", len(exact),
                 sum(a["said"] != b["said"] for a, b in exact), goal="identical")  # fmt: skip
    refused = [one[f"{name} {seed}"]["said"] for one in found.values() for seed in range(seeds)
               for name in ("over budget", "ledger of another run")]  # fmt: skip
    yield Figure(
        "F25", "refusals that do not reach a rank", len(refused), sum(not s.endswith("Error") for s in refused)
    )
    stopped = [one[LOST_RANK]["said"] for one in others.values()]
    yield Figure("F25", "ranks left waiting by one that failed", len(stopped), sum("Error" not in s for s in stopped))


if __name__ == "__main__":
    worker(Path(sys.argv[1]), int(sys.argv[2]))
