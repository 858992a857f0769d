"""A small network on two moons, trained privately in Lightning's own Trainer.

pip install 'tacit[lightning]'
python examples/lightning_table.py --out runs/lightning
"""

import argparse
from pathlib import Path

import lightning
import torch
from sklearn.datasets import make_moons
from torch import Tensor, nn
from torch.nn import functional

import tacit
from tacit.integrations.lightning import PrivateStrategy

RECORDS, STEPS, BATCH, DELTA = 4000, 300, 200, 1e-5


class Moons(lightning.LightningModule):
    """An ordinary module; what a record's loss is stands in ``losses``."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)

    def training_step(self, batch: tuple[Tensor, Tensor], number: int) -> Tensor:
        """The plain step, without privacy; the private strategy does not call it."""
        return losses(self, batch).mean()

    def validation_step(self, batch: list[Tensor], number: int) -> None:
        self.log("accuracy", (self(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.02)


def losses(module: Moons, batch: tuple[Tensor, Tensor]) -> Tensor:
    return functional.cross_entropy(module(batch[0]), batch[1], reduction="none")


def moons(count: int, seed: int) -> tuple[Tensor, Tensor]:
    x, y = make_moons(count, noise=0.15, random_state=seed)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--out", type=Path, default=Path("runs/lightning"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    sampling = tacit.PoissonSampling.of(batch_size=BATCH, dataset_size=RECORDS)
    noise = tacit.calibrate_noise(options.epsilon, DELTA, probability=sampling.probability, steps=STEPS)
    plan = tacit.PrivacyPlan(
        sampling, tacit.ClipRecords(1.0), tacit.GaussianNoise(multiplier=noise.noise_multiplier),
        options.out / "ledger.jsonl", budget=tacit.Budget(options.epsilon, DELTA), dataset_size=RECORDS,
    )  # fmt: skip
    strategy = PrivateStrategy(moons(RECORDS, 1), plan, losses)
    trainer = lightning.Trainer(
        strategy=strategy, max_steps=STEPS, logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    public = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*moons(1000, 2)), batch_size=1000)
    module = Moons()
    trainer.fit(module, strategy.samples)
    (found,) = trainer.validate(module, public, verbose=False)
    print(f"accuracy on public records {100 * found['accuracy']:.1f} %")
    print(f"epsilon {strategy.private.epsilon(DELTA):.3f} at delta {DELTA:g}; the ledger is {plan.ledger}")


if __name__ == "__main__":
    main()
