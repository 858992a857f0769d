"""Layer rules, one file a kind. To add one: write its function and enter it here; the contract tests check it.

A rule computes a call for all rows at once and notes how the gradient of its output becomes gradients of records. It
gets the run, which knows the rows (:class:`tacit.gradients.bookkeeping.ForwardPass`), and the arguments of the call,
and gives the output as the tensor of one row; NotImplemented stands for a form of the call that the rule does not know,
which then goes the general way: with one copy of the parameter a row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from tacit.layers.attention import attention, multi_head
from tacit.layers.convolution import CONVOLUTIONS, TRANSPOSED
from tacit.layers.embedding import embedding, embedding_bag
from tacit.layers.experts import GROUPED, grouped_mm
from tacit.layers.linear import addmm, linear, matmul
from tacit.layers.normalisation import batch_norm, group_norm, instance_norm, layer_norm, rms_norm
from tacit.layers.recurrent import CELLS, RECURRENT
from tacit.layers.unsuitable import refuse_layers, replace_batch_norm
from tacit.layers.whole_rows import POOLING, cross_entropy, gaussian_nll, histc, product

_T = torch.Tensor


@dataclass(frozen=True, slots=True)
class LayerRule:
    """A name for the reader, and the rule of each function of PyTorch; a custom operation is called by its name."""

    name: str
    functions: dict[Any, Callable[..., Any]]


LAYER_RULES = (
    LayerRule("linear", {functional.linear: linear}),
    LayerRule("matmul", dict.fromkeys((torch.matmul, torch.mm, _T.matmul, _T.mm, _T.__matmul__), matmul)),
    LayerRule("addmm", dict.fromkeys((torch.addmm, _T.addmm), addmm)),
    LayerRule("convolution", CONVOLUTIONS),
    LayerRule("transposed_convolution", TRANSPOSED),
    LayerRule("embedding", {functional.embedding: embedding}),
    LayerRule("embedding_bag", {functional.embedding_bag: embedding_bag}),
    LayerRule("layer_norm", dict.fromkeys((functional.layer_norm, torch.layer_norm), layer_norm)),
    LayerRule("rms_norm", dict.fromkeys((functional.rms_norm, torch.rms_norm), rms_norm)),
    LayerRule("group_norm", dict.fromkeys((functional.group_norm, torch.group_norm), group_norm)),
    LayerRule("instance_norm", {functional.instance_norm: instance_norm}),
    LayerRule("batch_norm", {functional.batch_norm: batch_norm}),
    LayerRule("recurrent", RECURRENT | CELLS),
    LayerRule(
        "attention",
        {
            functional.scaled_dot_product_attention: attention,
            functional.multi_head_attention_forward: multi_head,
        },
    ),
    LayerRule("experts", dict.fromkeys(GROUPED, grouped_mm) | {torch.histc: histc}),
    LayerRule("cross_entropy", {functional.cross_entropy: cross_entropy}),
    LayerRule("gaussian_nll", {functional.gaussian_nll_loss: gaussian_nll}),
    LayerRule("max_pooling", POOLING),
    LayerRule("product", dict.fromkeys((torch.prod, _T.prod), product)),
)
RULE_OF_FUNCTION = {function: rule for one in LAYER_RULES for function, rule in one.functions.items()}

__all__ = ["LAYER_RULES", "RULE_OF_FUNCTION", "LayerRule", "refuse_layers", "replace_batch_norm"]
