"""The private trainer on real transformers, tiny models from configurations. Run by `python3 dev.py integrations`."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import tacit
from tacit.errors import InputError
from tacit.ledger import read_ledger

transformers = pytest.importorskip("transformers", reason="needs the extra huggingface")
pytest.importorskip("accelerate", reason="needs the extra huggingface")
families = pytest.importorskip("benchmarks.model_families")

from tacit.integrations.huggingface import PrivateTrainer, private_plan, record_loss  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries
RECORDS, DELTA = 64, 1e-3
SIZE = replace(families.Size(), hidden=16, layers=1, heads=2, positions=8, records=RECORDS)


@pytest.fixture
def arguments(tmp_path):
    def make(**options):
        options = {"max_steps": 6, "save_strategy": "no", "logging_steps": 2, "learning_rate": 1e-2} | options
        return transformers.TrainingArguments(
            output_dir=str(tmp_path / "out"),
            per_device_train_batch_size=8,
            gradient_accumulation_steps=2,
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            **options,
        )

    return make


@pytest.fixture
def plan(tmp_path):
    def make(args, name="ledger", **more):
        return private_plan(args, epsilon=4.0, delta=DELTA, records=RECORDS, ledger=tmp_path / f"{name}.jsonl", **more)

    return make


def family(name):
    """A model with a loss of its own, and its records as a list."""
    torch.manual_seed(0)
    model, batch, _ = families.build(name, SIZE)
    if "label" in batch:
        batch["labels"] = batch.pop("label")
    elif "labels" not in batch:
        batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    return model, [{key: part[row] for key, part in batch.items()} for row in range(RECORDS)]


def moved(model, before):
    return {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}


def snapshot(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("name", ["GPT-2", "BERT"])
def test_the_ledger_and_the_epsilon_are_those_of_a_plain_private_loop(arguments, plan, name, tmp_path):
    args, (model, data) = arguments(), family(name)
    trainer, before = PrivateTrainer(model, args, train_dataset=data, plan=plan(args)), snapshot(model)
    trainer.train()
    assert moved(model, before) == {name for name, p in model.named_parameters() if p.requires_grad}
    of_loop = plan(args, "loop")
    model, data = family(name)
    rows = {key: torch.stack([record[key] for record in data]) for key in data[0]}
    if name == "BERT":
        model.config.problem_type = "single_label_classification"
    with tacit.PrivateGradient(model, record_loss, replace(of_loop, physical_batch=8)) as private:
        for sample in private.samples(rows, steps=6):
            private.backward(sample)
        assert private.epsilon(DELTA) == trainer.private.epsilon(DELTA) <= 4.0
    assert read_ledger(of_loop.ledger).charges == read_ledger(tmp_path / "ledger.jsonl").charges


def test_what_is_logged_is_public(arguments, plan):
    args, (model, data) = arguments(), family("GPT-2")
    trainer = PrivateTrainer(model, args, train_dataset=data, plan=plan(args))
    out = trainer.train()
    assert out.global_step == 6
    assert out.training_loss != out.training_loss
    logged = set().union(*trainer.state.log_history)
    assert not {"loss", "train_loss", "total_flos", "num_input_tokens_seen"} & logged
    assert {"epsilon", "grad_norm", "learning_rate"} <= logged
    epsilons = [entry["epsilon"] for entry in trainer.state.log_history]
    assert epsilons == sorted(epsilons)
    assert trainer.ledger.steps == 6


def test_a_run_goes_on_from_its_checkpoint_and_pays_again_for_what_was_lost(arguments, plan, tmp_path):
    args = arguments(save_strategy="steps", save_steps=2)
    privacy = plan(args, room=4)
    model, data = family("GPT-2")
    PrivateTrainer(model, args, train_dataset=data, plan=privacy).train()
    fresh, _ = family("GPT-2")
    trainer = PrivateTrainer(fresh, args, train_dataset=data, plan=privacy)
    trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))
    assert trainer.state.global_step == 6
    assert trainer.ledger.steps == 6 + 4  # steps 3 to 6 are released twice
    assert trainer.private.epsilon(DELTA) <= 4.0
    (tmp_path / "out" / "checkpoint-4" / "tacit.safetensors").unlink()
    trainer = PrivateTrainer(fresh, args, train_dataset=data, plan=plan(args, "other"))
    with pytest.raises(InputError, match=r"tacit\.safetensors"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-4"))


def test_stopping_early_gives_back_what_was_charged_ahead(arguments, plan):
    class Stop(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            control.should_training_stop = state.global_step == 2

    args, (model, data) = arguments(), family("GPT-2")
    trainer = PrivateTrainer(model, args, train_dataset=data, plan=plan(args), callbacks=[Stop()])
    trainer.train()
    assert trainer.ledger.steps == 2


def test_a_hugging_face_data_set_with_records_of_several_lengths_and_bf16(arguments, plan):
    datasets = pytest.importorskip("datasets", reason="needs the extra huggingface")
    model, data = family("GPT-2")
    rows = [{"input_ids": one["input_ids"][: 4 + row % 2 * 4].tolist(), "note": "x"} for row, one in enumerate(data)]
    for row in rows:
        row["labels"], row["attention_mask"] = row["input_ids"], [1] * len(row["input_ids"])
    args = arguments(bf16=True, max_steps=-1, num_train_epochs=1)
    trainer = PrivateTrainer(model, args, train_dataset=datasets.Dataset.from_list(rows), plan=plan(args))
    before = snapshot(model)
    assert trainer.train().global_step == RECORDS // 16
    assert moved(model, before)


def test_a_first_record_that_cannot_be_made_does_not_stop_the_run(arguments, plan):
    args, (model, data) = arguments(max_steps=2), family("BERT")

    class Broken(torch.utils.data.Dataset):
        def __len__(self):
            return RECORDS

        def __getitem__(self, row):
            if row == 0:
                raise ValueError("a secret of record 0")
            return data[row]

    trainer = PrivateTrainer(model, args, train_dataset=Broken(), plan=plan(args))
    assert trainer.train().global_step == 2


TARGETS = {"BERT": ["query", "value"], "ModernBERT": ["Wqkv"], "DistilBERT": ["q_lin"], "GPT-2": ["c_attn"],
           "T5": ["q", "v"], "ViT": ["q_proj", "query"]}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in families.FAMILIES if "LoRA" not in name])
def test_adapters_of_every_family_are_trained_alone(arguments, plan, name):
    peft = pytest.importorskip("peft", reason="needs the extra huggingface")
    args, (model, data) = arguments(max_steps=2), family(name)
    layers = {part.rpartition(".")[2] for part, module in model.named_modules() if isinstance(module, nn.Linear)}
    targets = [one for one in TARGETS.get(name, ["q_proj", "v_proj"]) if one in layers or name == "GPT-2"]
    model = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=targets))
    trainer, before = PrivateTrainer(model, args, train_dataset=data, plan=plan(args)), snapshot(model)
    trainer.train()
    assert trainer.private.path == "records together"
    assert moved(model, before) == {name for name, p in model.named_parameters() if p.requires_grad}
    assert all("lora" in part for part in moved(model, before))
    of_plan = tacit.accountants.PLDAccountant().guarantee(trainer.ledger, delta=DELTA).epsilon
    assert trainer.private.epsilon(DELTA) == of_plan


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda args, plan: {"plan": replace(plan, sampling=tacit.PoissonSampling(0.5, 32), dataset_size=None)},
         "ask for 16 records a step"),
        (lambda args, plan: {"plan": "epsilon 3"}, "plan must be a PrivacyPlan"),
        (lambda args, plan: {"compute_loss_func": lambda *_, **__: None}, "losses="),
        (lambda args, plan: {"model_init": lambda: None}, "model_init"),
        (lambda args, plan: {"train_dataset": None}, "train_dataset"),
    ],
)  # fmt: skip
def test_what_cannot_be_private_is_refused_in_one_line(arguments, plan, change, said, tmp_path):
    args, (model, data) = arguments(), family("GPT-2")
    options = {"train_dataset": data, "plan": plan(args)} | change(args, plan(args))
    with pytest.raises(InputError, match=said) as raised:
        PrivateTrainer(model, args, **options).train()
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "ledger.jsonl").exists()


def test_accelerate_prepares_model_and_optimizer_of_a_private_loop(plan, arguments):
    accelerate = pytest.importorskip("accelerate", reason="needs the extra huggingface")
    args, (model, data) = arguments(), family("GPT-2")
    accelerator = accelerate.Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    before = snapshot(model)
    with tacit.PrivateGradient(model, record_loss, plan(args)) as private:
        for sample in private.samples(data, steps=2):
            optimizer.zero_grad()
            private.backward(sample)
            optimizer.step()
    assert moved(model, before)
