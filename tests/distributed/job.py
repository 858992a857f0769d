"""The script that tests run under torchrun: ``python -m torch.distributed.run ... job.py FOLDER WHAT``.

Every rank writes what it found to FOLDER/<what>-<size>-<rank>.json.
"""

import hashlib
import json
import os
import re
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from nets import Net, losses, problem, sharded
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import tacit
from tacit.distributed import current_ranks, gathers, shards
from tacit.ledger import read_ledger

STEPS = 3
SMALL = gathers._SMALL


def private(model, path, probability=1.0, noise=1e-300, steps=STEPS, **options):
    size = 203 * probability
    given = tacit.GaussianNoise(stddev=noise)
    options.setdefault("physical_batch", 32)
    return tacit.PrivateGradient(
        model, losses, tacit.PoissonSampling(probability, size), tacit.ClipRecords(0.5), given, ledger=path, **options
    )


def whole(model):
    """All parameters, whether they are sharded or not."""
    return [(value.full_tensor() if hasattr(value, "full_tensor") else value).detach() for value in model.parameters()]


def trained(model, data, engine, steps=STEPS, **given):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with engine:
        for sample in engine.samples(data, steps, **given):
            optimizer.zero_grad()
            engine.backward(sample)
            optimizer.step()
    return torch.cat([value.reshape(-1) for value in whole(model)])


def sums(folder):
    """Without noise to speak of: the same model by replicas and by shards, exact and with a faulty record."""
    found = {}
    kinds = ("replicas", "replicas deterministic", "shards", "shards deterministic", "shards with faults",
             "shards by use", "shards by use deterministic", "shards by use with faults")  # fmt: skip
    for name in kinds:
        gathers._SMALL, shards._TOLD_AT_ONCE = (0, 4096) if "by use" in name else (SMALL, SMALL)
        model, data = problem()
        if "faults" in name:
            data[1][50] = 77  # no such class: its rank has to look for it, and the others take part
        if "shards" in name:
            sharded(model)
        path = folder / f"{name}-{dist.get_world_size()}.jsonl"
        values = trained(model, data, private(model, path, deterministic="deterministic" in name))
        found[name] = {"values": values.tolist(), "bits": hashlib.sha256(values.numpy().tobytes()).hexdigest(),
                       "ledger": hashlib.sha256(path.read_bytes()).hexdigest(),
                       "gradients": sorted({type(value.grad).__name__ for value in model.parameters()})}  # fmt: skip
    return found


def noise(folder):
    """A model that learns nothing, so that what is released is noise; each rank's own shards."""
    found = {}
    for name in ("replicas", "shards"):
        torch.manual_seed(0)
        model = Net(width=64)
        if name == "shards":
            sharded(model)
        _, data = problem()
        path = folder / f"noise-{name}-{dist.get_world_size()}.jsonl"
        engine = private(model, path, probability=1e-9, noise=2.0, deterministic=False)
        draws = []
        for sample in engine.samples(data, STEPS):
            model.zero_grad()
            engine.backward(sample)
            grads = [value.grad for value in model.parameters()]
            draws.append(torch.cat([(g.full_tensor() if hasattr(g, "full_tensor") else g).reshape(-1) for g in grads]))
        engine.close()
        found[name] = (torch.stack(draws) * 203e-9).tolist()
    return found


def memory(folder):
    """Bytes of parameters and gradients that this rank holds after a step, and whether any tensor is of full size."""
    model, data = Net(width=256), problem()[1]
    total = sum(value.numel() for value in model.parameters())
    sharded(model)
    engine = private(model, folder / f"memory-{dist.get_world_size()}.jsonl")
    meeting, sizes = engine._engine._shards, []
    gather, gathered = meeting._gathers._gather, meeting.whole.values()

    def noting(number):
        gather(number)
        sizes.append(sum(value.untyped_storage().size() for value in gathered))

    meeting._gathers._gather = noting
    for sample in engine.samples(data, 1):
        engine.backward(sample)
    engine.close()
    left = sum(value.untyped_storage().size() for value in gathered)
    held = sum(v.to_local().numel() + v.grad.to_local().numel() for v in model.parameters())
    return {"entries": held, "total": 2 * total, "left": left, "most": max(sizes) / (4 * total)}


def ways(folder):
    """Other ways to shard a model and to hold data, beside replicas of the same."""
    found = {}
    for name in ("frozen", "frozen shards", "half precision shards", "mesh shards", "own rows"):
        model, data = problem()
        if "frozen" in name:
            model.blocks[0].requires_grad_(False)
        if "half" in name:
            sharded(
                model, MixedPrecisionPolicy(torch.bfloat16), MixedPrecisionPolicy(torch.bfloat16, None, torch.float32)
            )
        elif "mesh" in name:
            shape = (2, dist.get_world_size() // 2)
            sharded(model, mesh=init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")))
        elif "shards" in name:
            sharded(model)
        own = "own" in name
        rows = tuple(column[dist.get_rank() :: dist.get_world_size()] for column in data) if own else data
        engine = private(model, folder / f"{name}.jsonl", noise=1e-3 if "mesh" in name else 1e-300)
        found[name] = trained(model, rows, engine, own_rows=own).tolist()
    return found


def failing(folder):
    """The last rank refuses in the middle of a pass; the others hear of it at once."""
    model, data = problem()
    sharded(model)
    last, begun = dist.get_rank() == dist.get_world_size() - 1, []

    def stopping(model, batch):
        if last and begun:
            model(batch[0])  # forward; the gathers of the way back are still due
            raise MemoryError("this rank has no luck")
        return losses(model, batch)

    plan = tacit.PoissonSampling(0.5, 100), tacit.ClipRecords(0.5), tacit.GaussianNoise(multiplier=1.0)
    with tacit.PrivateGradient(model, stopping, *plan, ledger=folder / "failing.jsonl", physical_batch=16) as engine:
        for sample in engine.samples(data, STEPS):
            begun.append(sample.step)
            engine.backward(sample)
    return {}


def refusals(folder):
    model = sharded(problem()[0])
    said = {}
    asked = {
        "evidence": {"evidence": tacit.EvidencePlan(members=True)},
        "strict": {"numerics": "strict"},
        "trusted": {"isolation": "trusted"},
    }
    for name, options in asked.items():
        try:
            private(model, folder / f"{name}.jsonl", **options)
        except tacit.InputError as error:
            said[name] = str(error)
    return said


def die():
    os.kill(os.getpid(), int(os.environ["KILL"]))


def dying_inside():
    """A hook that has the process killed while the losses run, once the list says so: they may send no signal."""
    inside = [""]

    def wait():
        while inside[0] != "now":
            time.sleep(0.001)
        die()

    def hook(*_):
        if inside[0]:
            inside[0] = "now"
            time.sleep(60)

    threading.Thread(target=wait, daemon=True).start()
    return inside, hook


def resumed(folder):
    """Steps with a checkpoint after each; the last rank is killed in the middle where KILL says so."""
    model, data = problem()
    sharded(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    engine = private(model, folder / "ledger.jsonl", probability=0.5, noise=1.0, block=2)
    content = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    step, found = engine.load_checkpoint(folder / "checkpoint", like=content)
    if found is not None:
        set_state_dict(model, optimizer, model_state_dict=found["model"], optim_state_dict=found["optimizer"])
    begun = hashlib.sha256(torch.cat([value.reshape(-1) for value in whole(model)]).numpy().tobytes()).hexdigest()
    released, started = 0, time.monotonic()
    inside, hook = dying_inside()
    list(model.modules())[-1].register_forward_pre_hook(hook)
    for sample in engine.samples(data, 8, first=step):
        optimizer.zero_grad()
        last = dist.get_rank() == dist.get_world_size() - 1
        if os.environ.get("KILL") and sample.step == 5 and last:
            inside[0] = os.environ.get("INSIDE", "")
            inside[0] or die()
        engine.backward(sample)
        released += 1
        optimizer.step()
        bits = hashlib.sha256(torch.cat([v.reshape(-1) for v in whole(model)]).numpy().tobytes()).hexdigest()
        if sample.step < 5:
            content = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
            engine.save_checkpoint(folder / "checkpoint", content, step=sample.step + 1)
            if current_ranks().first:
                (folder / "last").write_text(json.dumps({"step": sample.step + 1, "bits": bits}))
    engine.close()
    return {"from": step, "begun": begun, "released": released, "charged": engine.ledger.steps,
            "seconds": time.monotonic() - started}  # fmt: skip


def page(folder):
    """The Python of docs/ranks.md, each block with names of its own; Ray is a stand-in that calls the loop."""
    text = (Path(__file__).parents[2] / "docs" / "ranks.md").read_text()
    train, shards, ray = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    names, done = {"tacit": tacit, "losses": losses, "Net": Net, "fully_shard": fully_shard}, {}

    def plan(name, kind=tacit.PrivacyPlan, **more):
        asked = tacit.PoissonSampling(0.1, 20.3), tacit.ClipRecords(0.5), tacit.GaussianNoise(multiplier=1.0)
        return kind(*asked, ledger=folder / f"{name}.jsonl", **more)

    def run(code, name, given):
        exec(code, names | given)
        done[name] = read_ledger(folder / f"{name}.jsonl").steps

    model, data = problem()
    job = SimpleNamespace(distributed=SimpleNamespace(init_process_group=lambda backend: None))  # it was called
    run(train, "train", {"torch": job, "method": tacit.SGD(model, losses, 0.1), "dataset": data,
                         "plan": plan("train", tacit.TrainingPlan, steps=4)})  # fmt: skip
    own = {"torch": torch, "model": model, "mesh": init_device_mesh("cpu", (dist.get_world_size(),))}
    loop = (
        "for sample in private.samples(data, 4):\n    private.backward(sample)\n    optimizer.step()\nprivate.close()\n"
    )
    run(shards + loop, "shards", own | {"data": data, "plan": plan("shards")})
    trainer = SimpleNamespace(TorchTrainer=lambda loop, scaling_config: SimpleNamespace(fit=loop))
    modules = {"ray": SimpleNamespace(), "ray.train": SimpleNamespace(ScalingConfig=dict), "ray.train.torch": trainer}
    sys.modules.update(modules)
    replica = Net()
    run(ray, "ray", {"Net": lambda: replica, "plan": plan("ray"), "dataset": data,
                     "optimizer": torch.optim.SGD(replica.parameters(), lr=0.1)})  # fmt: skip
    return done


def main():
    folder, what = Path(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))  # a loaded machine may pause a rank
    torch.set_num_threads(1)
    gathers._SMALL = int(os.environ.get("SMALL", SMALL))  # 0: every module is gathered when it is used
    started = time.monotonic()
    rank, size = dist.get_rank(), dist.get_world_size()
    try:
        found = globals()[what](folder)
    except (tacit.TacitError, MemoryError) as error:
        found = {"error": type(error).__name__, "said": str(error), "seconds": time.monotonic() - started}
    (folder / f"{what}-{size}-{rank}.json").write_text(json.dumps(found))
    if "error" not in found:
        dist.destroy_process_group()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun ends all when one is gone: let each say what it saw
    main()
