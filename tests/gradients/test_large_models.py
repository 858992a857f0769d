"""Families of Hugging Face models built from their configurations: the fast path takes them as they are."""

import numpy as np
import pytest
import torch

from tacit.gradients import clipped_sum
from tacit.isolation.rows import UncoveredError
from tacit.losses import ModelLosses
from tacit.mechanisms import ClipRecords, GaussianNoise, build_mechanism
from tacit.randomness import Randomness

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]
transformers = pytest.importorskip("transformers", reason="the families are built by transformers")
families = pytest.importorskip("benchmarks.model_families")


def built(name, dropout):
    if "LoRA" in name:
        pytest.importorskip("peft", reason="LoRA is put in by peft")
    torch.manual_seed(0)
    model, batch, losses = families.build(name, families.Size(dropout=dropout))
    return ModelLosses(model, losses), batch


def summed(losses, batch, strategy="fast", chunk=8):
    shapes = {name: value.shape for name, value in losses.params.items()}
    mechanism = build_mechanism(ClipRecords(0.1), GaussianNoise(multiplier=1.0), shapes, slack=1e-5)
    chance = Randomness.seeded(3).record_chance(np.arange(8))
    return clipped_sum(losses, losses.params, batch, mechanism, chunk=chunk, strategy=strategy, chance=chance)


def distance(one, other):
    """The largest difference of a parameter's sums, in units of the length of them all."""
    total = sum(float(value.square().sum()) for value in other.sums.values()) ** 0.5
    assert total > 1e-3
    return max(float((one.sums[name] - value).norm()) / total for name, value in other.sums.items())


@pytest.mark.parametrize("name", families.FAMILIES)
def test_a_family_is_fast_and_equal_to_record_by_record(name):
    losses, batch = built(name, dropout=0.0)
    fast, wanted = summed(losses, batch), summed(losses, batch, "record")
    assert (wanted.squared_norms.sum(1) > 0).all()
    assert distance(fast, wanted) <= 1e-5
    torch.testing.assert_close(fast.squared_norms.sum(1), wanted.squared_norms.sum(1), rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("name", families.FAMILIES)
def test_a_family_is_fast_with_dropout_whatever_the_chunks(name):
    losses, batch = built(name, dropout=0.1)
    found = summed(losses, batch)
    assert distance(summed(losses, batch), found) == 0.0
    assert distance(summed(losses, batch, chunk=3), found) <= 1e-6
    quiet, _ = built(name, dropout=0.0)
    assert distance(summed(quiet, batch), found) > 1e-4  # masks were drawn


def test_experts_in_a_loop_say_which_operation_is_in_the_way_and_what_to_set():
    losses, batch = built("Mixtral", dropout=0.0)
    losses.model.set_experts_implementation("eager")
    with pytest.raises(UncoveredError, match=r"^nonzero .*grouped_mm"):
        summed(losses, batch)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("name", ["BERT", "GPT-2", next(name for name in families.FAMILIES if "LoRA" in name)])
def test_checkpoints_of_hugging_face_change_nothing(name, reentrant):
    losses, batch = built(name, dropout=0.1)
    without = summed(losses, batch)
    language_model = next(module for module in losses.model.modules() if hasattr(module, "enable_input_require_grads"))
    language_model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    language_model.enable_input_require_grads()
    assert distance(summed(losses, batch), without) == 0.0
