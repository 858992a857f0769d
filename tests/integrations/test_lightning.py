"""The private strategy on the real Lightning. Run by `python3 dev.py integrations`."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

import tacit
from tacit.errors import InputError
from tacit.ledger import read_ledger

lightning = pytest.importorskip("lightning", reason="needs the extra lightning")

from tacit.integrations.lightning import PrivateStrategy  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries
DATA = (torch.randn(64, 3), torch.arange(64) % 2)


def losses(module, batch):
    return functional.cross_entropy(module(batch[0]), batch[1], reduction="none")


class Automatic(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, x):
        return self.layers(x)

    def training_step(self, batch, number):
        raise AssertionError("no loss of a private record is computed for Lightning")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05)


class Manual(Automatic):
    automatic_optimization = False

    def training_step(self, sample, number):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(sample)
        optimizer.step()


@pytest.fixture
def plan(tmp_path):
    return tacit.PrivacyPlan(
        tacit.PoissonSampling.of(batch_size=16, dataset_size=64), tacit.ClipRecords(1.0),
        tacit.GaussianNoise(multiplier=1.0), tmp_path / "ledger.jsonl",
    )  # fmt: skip


@pytest.fixture
def trainer(tmp_path):
    def make(strategy, **options):
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        options = {"max_steps": 6, "enable_checkpointing": False} | options
        return lightning.Trainer(strategy=strategy, default_root_dir=tmp_path, **quiet, **options)

    return make


@pytest.mark.parametrize("kind", [Automatic, Manual])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_weights_move_and_the_ledger_is_that_of_a_plain_loop(plan, trainer, tmp_path, kind, precision):
    module, strategy = kind(), PrivateStrategy(DATA, plan, losses)
    before = [p.detach().clone() for p in module.parameters()]
    trainer(strategy, precision=precision).fit(module, strategy.samples)
    assert all(not torch.equal(one, other) for one, other in zip(before, module.parameters(), strict=True))
    loop = replace(plan, ledger=tmp_path / "loop.jsonl")
    with tacit.PrivateGradient(Automatic(), losses, loop) as private:
        for sample in private.samples(DATA, steps=6):
            private.backward(sample)
        assert private.epsilon(1e-3) == strategy.private.epsilon(1e-3)
    assert read_ledger(loop.ledger).charges == read_ledger(plan.ledger).charges


def test_it_learns_what_the_plain_loop_learns(plan, trainer):
    x = torch.randn(64, 3)
    module, strategy = Automatic(), PrivateStrategy((x, (x[:, 0] > 0).long()), plan, losses)
    trainer(strategy, max_steps=-1, max_epochs=25).fit(module, strategy.samples)
    assert strategy.private.ledger.steps == 25 * 4
    assert (module(x).argmax(1) == (x[:, 0] > 0)).float().mean() > 0.8


def test_a_run_goes_on_from_its_checkpoint(plan, trainer, tmp_path):
    from lightning.pytorch.callbacks import ModelCheckpoint

    def fit(steps, **more):
        strategy = PrivateStrategy(DATA, plan, losses)
        kept = ModelCheckpoint(tmp_path / "kept", every_n_train_steps=3, save_top_k=-1)
        made = trainer(strategy, max_steps=steps, callbacks=[kept], enable_checkpointing=True)
        made.fit(Automatic(), strategy.samples, **more)
        return made, strategy

    fit(6)
    (path,) = (tmp_path / "kept").glob("*step=3.ckpt")
    made, strategy = fit(6, ckpt_path=path, weights_only=False)
    assert made.global_step == 6
    assert strategy.private.ledger.steps == 6 + 3
    path.with_suffix(".tacit").unlink()
    with pytest.raises(InputError, match="cannot go on"):
        fit(6, ckpt_path=path, weights_only=False)


def test_what_cannot_be_private_is_refused_in_one_line(plan, trainer, tmp_path):
    def refused(said, module=None, loader=None, **options):
        strategy = PrivateStrategy(DATA, plan, losses)
        with pytest.raises(InputError, match=said):
            trainer(strategy, **options).fit(module or Automatic(), loader or strategy.samples)

    refused("accumulate_grad_batches", accumulate_grad_batches=2)
    refused("max_steps or max_epochs", max_steps=-1, max_epochs=-1)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*DATA), batch_size=16)
    refused("strategy.samples", loader=loader)

    class Loss(Manual):
        def training_step(self, sample, number):
            self.manual_backward(torch.zeros(()))

    assert not (tmp_path / "ledger.jsonl").exists()
    refused("takes the sample", module=Loss())
