"""Ordinary encoders and decoders, built from their configurations: the fast path covers them as they are."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from tacit.gradients import clipped_sum
from tacit.losses import ModelLosses
from tacit.mechanisms import ClipRecords, GaussianNoise, build_mechanism

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]
transformers = pytest.importorskip("transformers")


def both_ways(losses, batch):
    shapes = {name: value.shape for name, value in losses.params.items()}
    mechanism = build_mechanism(ClipRecords(0.1), GaussianNoise(multiplier=1.0), shapes, slack=1e-5)
    return (clipped_sum(losses, losses.params, batch, mechanism, chunk=3, strategy=way) for way in ("fast", "record"))


def assert_fast_and_right(model, batch, losses):
    fast, wanted = both_ways(ModelLosses(model.train(), losses), batch)
    total = sum(float(value.square().sum()) for value in wanted.sums.values()) ** 0.5
    for name, value in wanted.sums.items():
        assert (fast.sums[name] - value).norm() <= 1e-4 * total, name


def test_bert_as_a_classifier():
    config = transformers.BertConfig(
        num_hidden_layers=2, num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    model = transformers.BertForSequenceClassification(config)
    tokens, mask = torch.randint(0, config.vocab_size, (3, 20)), torch.ones(3, 20, dtype=torch.long)
    mask[1, 12:] = 0

    def losses(model, batch):
        return cross_entropy(model(batch["tokens"], attention_mask=batch["mask"]).logits, batch["y"], reduction="none")

    assert_fast_and_right(model, {"tokens": tokens, "mask": mask, "y": torch.tensor([0, 2, 1])}, losses)


def test_gpt2_as_a_language_model():
    config = transformers.GPT2Config(n_layer=2, vocab_size=5000, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = transformers.GPT2LMHeadModel(config)

    def losses(model, tokens):
        logits = model(tokens, use_cache=False).logits[:, :-1]
        return cross_entropy(logits.mT, tokens[:, 1:], reduction="none").mean(1)

    assert_fast_and_right(model, torch.randint(0, 5000, (3, 16)), losses)


def test_a_vision_transformer():
    config = transformers.ViTConfig(
        num_hidden_layers=2, image_size=64, num_labels=4, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    model = transformers.ViTForImageClassification(config)

    def losses(model, batch):
        return cross_entropy(model(batch[0]).logits, batch[1], reduction="none")

    assert_fast_and_right(model, (torch.randn(3, 3, 64, 64), torch.tensor([0, 3, 1])), losses)
