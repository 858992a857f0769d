"""Layer rules, one file each. To add one: write its file and enter it here; the contract tests then hold it to vmap."""

from typing import Any

from tacit.gradients.layers.broadcast import DIFFERENCE, EXPAND, PRODUCT, SUM
from tacit.gradients.layers.convolution import CONVOLUTION, TRANSPOSED
from tacit.gradients.layers.embedding import EMBEDDING, EMBEDDING_BAG
from tacit.gradients.layers.linear import ADDMM, LINEAR, MATMUL
from tacit.gradients.layers.normalisation import BATCH_NORM, GROUP_NORM, INSTANCE_NORM, LAYER_NORM, RMS_NORM
from tacit.gradients.layers.rule import LayerCall, LayerRule

LAYER_RULES: tuple[LayerRule, ...] = (
    LINEAR,
    MATMUL,
    ADDMM,
    CONVOLUTION,
    TRANSPOSED,
    EMBEDDING,
    EMBEDDING_BAG,
    LAYER_NORM,
    RMS_NORM,
    GROUP_NORM,
    INSTANCE_NORM,
    BATCH_NORM,
    SUM,
    DIFFERENCE,
    PRODUCT,
    EXPAND,
)

RULE_OF_FUNCTION: dict[Any, LayerRule] = {function: rule for rule in LAYER_RULES for function in rule.functions}
# Rules that must be told which of two operands is the parameter.
SYMMETRIC = frozenset({SUM.name, DIFFERENCE.name, PRODUCT.name})

__all__ = ["LAYER_RULES", "RULE_OF_FUNCTION", "SYMMETRIC", "LayerCall", "LayerRule"]
