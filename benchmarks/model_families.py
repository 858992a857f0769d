"""Ten families of Hugging Face models built from their configurations, and two with LoRA: model, batch and losses.

Batches are mappings with masks, records are padded differently, and dropout is on unless it is set to zero.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional

Batch = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Size:
    """How large a model and its batch are."""

    hidden: int = 32
    layers: int = 2
    heads: int = 4
    positions: int = 12
    records: int = 8
    vocabulary: int = 50
    dropout: float = 0.1

    @property
    def config(self) -> dict[str, Any]:
        """What nearly all configurations call by these names."""
        return {
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": 4 * self.hidden,
            "max_position_embeddings": 2 * self.positions,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
        }


REAL = Size(hidden=256, layers=2, positions=64, records=32, vocabulary=4000)


def tokens(size: Size) -> Batch:
    """Every third record is short and padded, each of them differently."""
    ids = torch.randint(3, size.vocabulary, (size.records, size.positions))
    mask = torch.ones_like(ids)
    for record in range(0, size.records, 3):
        mask[record, size.positions - 1 - record % (size.positions // 2) :] = 0
    return {"input_ids": ids * mask, "attention_mask": mask}


def classify(model: nn.Module, batch: Batch) -> Tensor:
    inputs = {name: part for name, part in batch.items() if name != "label"}
    return functional.cross_entropy(model(**inputs).logits, batch["label"], reduction="none")


def continue_text(model: nn.Module, batch: Batch) -> Tensor:
    """The mean loss of the next token over the tokens that are not padding."""
    logits = model(**batch, use_cache=False).logits[:, :-1]
    return _mean_loss(logits, batch["input_ids"][:, 1:], batch["attention_mask"][:, 1:])


def translate(model: nn.Module, batch: Batch) -> Tensor:
    inputs = {name: part for name, part in batch.items() if name != "labels"}
    logits = model(**inputs, decoder_input_ids=batch["labels"], use_cache=False).logits[:, :-1]
    return _mean_loss(logits, batch["labels"][:, 1:], batch["attention_mask"][:, 1:])


def _mean_loss(logits: Tensor, wanted: Tensor, mask: Tensor) -> Tensor:
    each = functional.cross_entropy(logits.mT, wanted, reduction="none")
    return (each * mask).sum(1) / mask.sum(1)


Losses = Callable[[nn.Module, Batch], Tensor]
Workload = tuple[nn.Module, Batch, Losses]


def _labels(size: Size) -> Tensor:
    return torch.arange(size.records) % 3


def bert(size: Size) -> Workload:
    rates = {"hidden_dropout_prob": size.dropout, "attention_probs_dropout_prob": size.dropout}
    config = transformers.BertConfig(**size.config, **rates, num_labels=3)
    return transformers.BertForSequenceClassification(config), tokens(size) | {"label": _labels(size)}, classify


def modernbert(size: Size) -> Workload:
    rates = {f"{part}_dropout": size.dropout for part in ("attention", "embedding", "mlp")}
    special = {"cls_token_id": 1, "sep_token_id": 2, "local_attention": size.positions // 2}
    config = transformers.ModernBertConfig(**size.config, **rates, **special, num_labels=3)
    return transformers.ModernBertForSequenceClassification(config), tokens(size) | {"label": _labels(size)}, classify


def distilbert(size: Size) -> Workload:
    config = transformers.DistilBertConfig(
        vocab_size=size.vocabulary,
        dim=size.hidden,
        n_layers=size.layers,
        n_heads=size.heads,
        hidden_dim=4 * size.hidden,
        max_position_embeddings=2 * size.positions,
        dropout=size.dropout,
        attention_dropout=size.dropout,
        seq_classif_dropout=size.dropout,
        num_labels=3,
    )
    return transformers.DistilBertForSequenceClassification(config), tokens(size) | {"label": _labels(size)}, classify


def gpt2(size: Size) -> Workload:
    config = transformers.GPT2Config(
        vocab_size=size.vocabulary,
        n_embd=size.hidden,
        n_layer=size.layers,
        n_head=size.heads,
        n_positions=2 * size.positions,
        bos_token_id=1,
        eos_token_id=2,
        **{f"{part}_pdrop": size.dropout for part in ("resid", "embd", "attn")},
    )
    return transformers.GPT2LMHeadModel(config), tokens(size), continue_text


def _decoder(config: Any, model: Any, **options: Any) -> Callable[[Size], Workload]:
    def build(size: Size) -> Workload:
        settings = size.config | {"num_key_value_heads": size.heads // 2, "attention_dropout": size.dropout} | options
        return model(config(**settings)), tokens(size), continue_text

    return build


def t5(size: Size) -> Workload:
    config = transformers.T5Config(
        vocab_size=size.vocabulary,
        d_model=size.hidden,
        d_kv=size.hidden // size.heads,
        d_ff=4 * size.hidden,
        num_layers=size.layers,
        num_heads=size.heads,
        dropout_rate=size.dropout,
        decoder_start_token_id=0,
    )
    batch = tokens(size)
    return transformers.T5ForConditionalGeneration(config), batch | {"labels": batch["input_ids"].flip(0)}, translate


def vit(size: Size) -> Workload:
    side = 8 * max(1, int(size.positions**0.5))
    config = transformers.ViTConfig(
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=4 * size.hidden,
        image_size=side,
        patch_size=8,
        hidden_dropout_prob=size.dropout,
        attention_probs_dropout_prob=size.dropout,
        num_labels=3,
    )
    batch = {"pixel_values": torch.randn(size.records, 3, side, side), "label": _labels(size)}
    return transformers.ViTForImageClassification(config), batch, classify


def _with_lora(build: Callable[[Size], Workload], targets: list[str]) -> Callable[[Size], Workload]:
    def adapted(size: Size) -> Workload:
        import peft

        model, batch, losses = build(size)
        config = peft.LoraConfig(r=8, lora_alpha=16, lora_dropout=size.dropout, target_modules=targets)
        model = peft.get_peft_model(model, config)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:  # zero at first, which would leave lora_A without a gradient
                nn.init.normal_(parameter, std=0.02)
        return model, batch, losses

    return adapted


llama = _decoder(transformers.LlamaConfig, transformers.LlamaForCausalLM)
FAMILIES: dict[str, Callable[[Size], Workload]] = {
    "BERT": bert,
    "ModernBERT": modernbert,
    "DistilBERT": distilbert,
    "GPT-2": gpt2,
    "Llama": llama,
    "Qwen2": _decoder(transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "Gemma-2": _decoder(transformers.Gemma2Config, transformers.Gemma2ForCausalLM, head_dim=8),
    "Mixtral": _decoder(transformers.MixtralConfig, transformers.MixtralForCausalLM, num_local_experts=4),
    "T5": t5,
    "ViT": vit,
    "Llama with LoRA": _with_lora(llama, ["q_proj", "v_proj"]),
    "GPT-2 with LoRA": _with_lora(gpt2, ["c_attn"]),
}


def build(name: str, size: Size) -> Workload:
    model, batch, losses = FAMILIES[name](size)
    return model.train(), batch, losses
