"""The Python of docs/integrations.md, and of BERT in docs/opacus.md, runs as it is printed, on tiny models."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import tacit

DOCS = Path(__file__).parents[2] / "docs"
pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries
PLAN = tacit.PrivacyPlan(
    tacit.PoissonSampling.of(batch_size=16, dataset_size=64), tacit.ClipRecords(1.0),
    tacit.GaussianNoise(multiplier=1.0), "ledger.jsonl",
)  # fmt: skip


def python_of(page, section):
    """The blocks of a section that are Tacit's."""
    text = (DOCS / page).read_text().split(f"# {section}\n")[1].split("\n## ")[0].split("\n### ")[0]
    found = [code for code in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL) if "# Opacus" not in code]
    assert found
    return "\n".join(found)


def run(page, section, names):
    exec(compile(python_of(page, section), f"{page}, {section}", "exec"), names)
    return names


@pytest.fixture
def language(tmp_path, monkeypatch):
    """A tiny BERT that classifies, and its records."""
    transformers = pytest.importorskip("transformers", reason="needs the extra huggingface")
    pytest.importorskip("accelerate", reason="needs the extra huggingface")
    families = pytest.importorskip("benchmarks.model_families")
    monkeypatch.chdir(tmp_path)
    size = replace(families.Size(), hidden=16, layers=1, heads=2, positions=8, records=64)
    model, batch, _ = families.build("BERT", size)
    batch["labels"] = batch.pop("label") if "label" in batch else batch["labels"]
    data = [{key: part[row] for key, part in batch.items()} for row in range(64)]
    return {"transformers": transformers, "model": model, "data": data}


def test_hugging_face(language):
    names = run("integrations.md", "Hugging Face", language)
    assert 0 < names["trainer"].private.epsilon(1e-6) <= 3
    assert tacit.ledger.read_ledger("run/ledger.jsonl").steps == 200


def test_bert_from_opacus(language):
    from tacit.integrations.huggingface import PrivateTrainer, private_plan

    args = language["transformers"].TrainingArguments(output_dir="run", max_steps=4, per_device_train_batch_size=8)
    own = {"PrivateTrainer": PrivateTrainer, "private_plan": private_plan, "args": args, "EPSILON": 3.0, "DELTA": 1e-3}
    run("opacus.md", "BERT", language | own)
    assert tacit.ledger.read_ledger("run/ledger.jsonl").steps == 4


def test_lightning(tmp_path, monkeypatch):
    lightning = pytest.importorskip("lightning", reason="needs the extra lightning")
    monkeypatch.chdir(tmp_path)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

        def training_step(self, batch, number):
            raise AssertionError("no loss of a private record is computed for Lightning")

    def losses(module, batch):
        return torch.nn.functional.cross_entropy(module.layer(batch[0]), batch[1], reduction="none")

    data = torch.randn(64, 3), torch.arange(64) % 2
    run("integrations.md", "Lightning", {"lightning": lightning, "module": Module(), "losses": losses, "data": data,
                                         "plan": PLAN})  # fmt: skip
    assert tacit.ledger.read_ledger("ledger.jsonl").steps == 200
