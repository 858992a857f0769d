"""What the page for users of Opacus shows of Tacit runs as it is printed."""

import re
from pathlib import Path

import torch

import tacit

TEXT = (Path(__file__).parent.parent / "docs" / "opacus.md").read_text()
BLOCKS = re.findall(r"```python runs\n(.*?)```", TEXT, flags=re.DOTALL)


def test_every_block_trains_and_says_what_it_cost(tmp_path):
    model = torch.nn.Linear(4, 3)
    data = torch.randn(512, 4), torch.randint(0, 3, (512,))
    stepped = []

    def step(model, losses, data, **loading):
        before = [p.detach().clone() for p in model.parameters()]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        plan = tacit.PoissonSampling(0.25, 16), tacit.ClipRecords(1.0), tacit.GaussianNoise(multiplier=1.0)
        ledger = tmp_path / f"{len(stepped)}.jsonl"
        with tacit.PrivateGradient(model, losses, *plan, ledger=ledger) as private:
            for sample in private.samples(data, 2, **loading):
                private.backward(sample)
                optimizer.step()
            stepped.append(private.path)
        assert all(not torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))

    names = {"torch": torch, "tacit": tacit, "model": model, "data": data, "RECORDS": 512, "step": step,
             "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "LEDGER": tmp_path / "first.jsonl"}  # fmt: skip
    assert len(BLOCKS) == 5
    for block in BLOCKS:
        exec(block, names)
    names["private"].close()
    assert 2.9 < names["private"].epsilon(1e-5) <= 3.0
    assert stepped == ["records together"] * 4
