"""Fine-tune a causal language model privately with LoRA, in Hugging Face's own Trainer.

    pip install 'tacit[huggingface]'
    python examples/huggingface_lora.py --steps 60 --out runs/lora

The model is made from its configuration and learns sentences of a small grammar, so that nothing has to be fetched; put
your own model and data set in their place.
"""

import argparse
import random
from pathlib import Path

import peft
import torch
import transformers

from tacit.integrations.huggingface import PrivateTrainer, private_plan

WORDS = ["<pad>", "the", "a", "nurse", "doctor", "patient", "sees", "calls", "helps", "."]
RECORDS = 2000


def sentences(count: int, seed: int) -> list[dict[str, list[int]]]:
    """Noun, verb, noun: what follows what is all that there is to learn."""
    chance, found = random.Random(seed), []  # noqa: S311 (a toy)
    for _ in range(count):
        words = [chance.choice([1, 2]), chance.choice([3, 4, 5]), chance.choice([6, 7, 8]), chance.choice([1, 2]),
                 chance.choice([3, 4, 5]), 9]  # fmt: skip
        found.append({"input_ids": words, "labels": words, "attention_mask": [1] * len(words)})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--epsilon", type=float, default=3.0)
    parser.add_argument("--out", type=Path, default=Path("runs/lora"))
    options = parser.parse_args()
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=len(WORDS), n_layer=2, n_head=2, n_embd=32, n_positions=8,
                                     bos_token_id=0, eos_token_id=9)  # fmt: skip
    lora = peft.LoraConfig(r=8, target_modules=["c_attn", "c_fc"], modules_to_save=["lm_head"])
    model = peft.get_peft_model(transformers.GPT2LMHeadModel(config), lora)
    args = transformers.TrainingArguments(
        output_dir=str(options.out), max_steps=options.steps, per_device_train_batch_size=64,
        gradient_accumulation_steps=2, learning_rate=2e-2, logging_steps=20, save_strategy="no", report_to="none",
        use_cpu=True, disable_tqdm=True, max_grad_norm=0.0,
    )  # fmt: skip
    plan = private_plan(args, epsilon=options.epsilon, delta=1e-5, records=RECORDS, ledger=options.out / "ledger.jsonl")
    options.out.mkdir(parents=True, exist_ok=True)
    trainer = PrivateTrainer(
        model, args, train_dataset=sentences(RECORDS, 1), eval_dataset=sentences(200, 2), plan=plan
    )
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    print(f"loss on public sentences {before:.3f} before, {trainer.evaluate()['eval_loss']:.3f} after")
    print(f"epsilon {trainer.private.epsilon(1e-5):.3f} at delta 1e-5; the ledger is {options.out / 'ledger.jsonl'}")


if __name__ == "__main__":
    main()
